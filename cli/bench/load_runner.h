// Sends a workload and records the arrival time of each token.
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
  // Requests in flight at the same time; 0: no limit.
  size_t concurrency = 0;
  // Mean requests per second, sent as a Poisson process (exponential gaps); 0: each request is sent
  // as soon as `concurrency` allows.
  double request_rate = 0;
  uint64_t seed = 0;
  // A request that takes longer ends with DEADLINE_EXCEEDED; 0: no limit.
  Clock::duration timeout{0};
  // Called several times per second. Once it returns true, the run sends no more requests and
  // cancels those in flight. May be empty.
  std::function<bool()> stopped;
  // Each message of the request's stream, on gRPC's threads: one call at a time for a request, but
  // several requests at once. May be empty.
  std::function<void(size_t request, const v1::GenerateResponse& piece)> on_piece;
};

using ProgressFn = std::function<void(size_t n_done, uint64_t n_tokens)>;

// One record per request, in order. `duration` runs from the first request's send to the last
// request's end. `on_progress` is called on the caller's thread several times per second. A failed
// request has a record with its status; the run never retries. A stopped run has records only of
// the requests that had ended by then.
struct LoadResult {
  std::vector<RequestRecord> records;
  Clock::duration duration{};
};
LoadResult RunLoad(v1::Inference::Stub& stub, std::span<const Request> requests, const Load& load,
                   const ProgressFn& on_progress);

}  // namespace stagecoach::bench
