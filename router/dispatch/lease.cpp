#include "router/dispatch/lease.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "common/unix_time.h"

namespace stagecoach::router {

std::string NewLeaseHolder() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return fmt::format("{}/{}/{:08x}", host, getpid(), std::random_device()());
}

v1::Lease MakeLease(uint64_t highest_epoch, const std::string& holder) {
  constexpr uint64_t kNanosecondsInMs = 1'000'000;
  v1::Lease lease;
  lease.set_epoch(std::max<uint64_t>(UnixNanoseconds() / kNanosecondsInMs, highest_epoch + 1));
  lease.set_holder(holder);
  return lease;
}

}  // namespace stagecoach::router
