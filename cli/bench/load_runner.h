// Sends a workload and notes when each token came back.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "cli/bench/workload.h"
#include "stagecoach/v1/inference.grpc.pb.h"

namespace stagecoach::bench {

using Clock = std::chrono::steady_clock;

// Tokens that arrived in one message.
struct Arrival {
  Clock::time_point time;
  uint32_t n_tokens;
};

struct RequestRecord {
  Clock::time_point sent, done;
  std::vector<Arrival> arrivals;
  uint32_t prompt_tokens = 0;
  absl::Status status;
};

struct Load {
  // Requests on their way at the same time; 0: any number.
  size_t concurrency = 0;
  // Mean requests a second, as a Poisson process (exponential gaps); 0: as soon as there is room.
  double request_rate = 0;
  uint64_t seed = 0;
  // Asked several times a second; once it says yes, nothing more is sent and what is on its way is
  // cancelled. May be empty.
  std::function<bool()> stopped;
};

using ProgressFn = std::function<void(size_t n_done, uint64_t n_tokens)>;

// One record for each request, in order; `duration` is from the first sent to the last done.
// `on_progress` is called on this thread several times a second. A request that fails is a record
// with its status; nothing is sent twice. Of a load that was stopped there are the records of what
// had ended by then.
struct LoadResult {
  std::vector<RequestRecord> records;
  Clock::duration duration{};
};
LoadResult RunLoad(v1::Inference::Stub& stub, std::span<const Request> requests, const Load& load,
                   const ProgressFn& on_progress);

}  // namespace stagecoach::bench
