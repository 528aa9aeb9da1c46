#include "router/succession.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "common/status.h"
#include "router/dispatch/lease.h"
#include "router/frontend/arrival.h"
#include "router/frontend/http/completion_call.h"
#include "router/frontend/new_request_id.h"
#include "router/frontend/stream_call.h"

namespace stagecoach::router {
namespace {

Arrival ArrivalOf(const v1::StreamRecord& record) {
  Arrival arrival;
  const auto now = arrival.wall_time;
  arrival.wall_time = decltype(now)(std::chrono::microseconds(record.arrived_unix_us()));
  arrival.time -= now - arrival.wall_time;
  // The earlier router has checked its priority.
  arrival.caller = {.tenant = record.tenant(),
                    .weight = record.weight(),
                    .max_priority = std::numeric_limits<int32_t>::min(),
                    .rate = nullptr};
  return arrival;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> OpenJournal(const FrontEndFlags& flags) {
  if (flags.journal.place.empty()) return nullptr;
  v1::RouterRecord router;
  router.set_lease_holder(NewLeaseHolder());
  router.set_instance_id(InstanceId());
  SC_ASSIGN_OR_RETURN(
      std::unique_ptr<Journal> journal,
      Journal::Open({.place = flags.journal.place,
                     .max_bytes = flags.journal.max_bytes,
                     .keep = std::chrono::ceil<std::chrono::seconds>(flags.streams.keep)},
                    std::move(router)));
  SetInstanceId(journal->router().instance_id());
  return journal;
}

void ContinueStreams(Frontend& frontend, Journal& journal) {
  std::vector<Journal::Stream> streams = journal.TakeStreams();
  if (streams.empty()) return;
  spdlog::info("journal: goes on with {} streams of the router before", streams.size());
  absl::BlockingCounter left(static_cast<int>(streams.size()));
  for (Journal::Stream& stream : streams) {
    const uint64_t number = stream.number;
    const Arrival arrival = ArrivalOf(stream.record);
    const bool is_grpc = stream.record.has_generate() || stream.record.has_chat();
    const auto go_on = is_grpc ? ContinueStream : http::CompletionCall::Continue;
    const absl::Status status =
        go_on(&frontend, std::move(stream), arrival, [&left] { left.DecrementCount(); });
    if (status.ok()) continue;
    spdlog::warn("journal: a stream is dropped: {}",
                 std::string_view(status.message().data(), status.message().size()));
    journal.Remove(number);
    left.DecrementCount();
  }
  left.Wait();
}

}  // namespace stagecoach::router
