#include "router/dispatch/lease.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "common/unix_time.h"

namespace stagecoach::router {

v1::Lease MakeLease(uint64_t highest_epoch) {
  constexpr uint64_t kNanosecondsInMs = 1'000'000;
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  v1::Lease lease;
  lease.set_epoch(std::max<uint64_t>(UnixNanoseconds() / kNanosecondsInMs, highest_epoch + 1));
  lease.set_holder(fmt::format("{}/{}/{:08x}", host, getpid(), std::random_device()()));
  return lease;
}

}  // namespace stagecoach::router
