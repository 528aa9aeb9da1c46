// Sends many requests at the same time over one connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/batch_line.h"
#include "cli/completion.h"
#include "cli/grpc_client.h"
#include "common/mutex.h"

namespace stagecoach::cli {

struct BatchInput {
  size_t index = 0;  // in its file
  std::string text;
};

// Sends the lines of a batch file and reports their results in the order of the lines. A line that
// does not parse, or that the server refuses, gets a result with an error. If the server's queue is
// full (RESOURCE_EXHAUSTED), the runner retries the line with growing delays.
class BatchRunner {
 public:
  // Receives one serialized JSON object.
  using ResultFn = std::function<void(const std::string&)>;
  using ProgressFn = std::function<void(size_t n_done, uint64_t n_tokens)>;

  // `model`: the model's name, for results that include it.
  BatchRunner(const GrpcClient& client, std::string model, std::vector<BatchInput> lines,
              size_t concurrency);

  // Calls `on_result` for each line in order, as soon as that line and all earlier ones are done,
  // and `on_progress` from time to time. Both run on the calling thread. Returns the number of
  // failed lines. Call it once.
  size_t Run(const ResultFn& on_result, const ProgressFn& on_progress);

 private:
  class Call;
  using Clock = std::chrono::steady_clock;

  void Start(size_t index, uint32_t attempt);
  // Called on gRPC's threads.
  void CountTokens(size_t n);
  void Finish(size_t index, uint32_t attempt, const BatchLine& line, const Completion& completion,
              const grpc::Status& status);
  std::string ErrorResult(size_t index, const LineName& name, const absl::Status& status) const;
  void StoreResult(size_t index, std::string result, bool failed);

  const GrpcClient& client_;
  const std::string model_;
  const std::vector<BatchInput> lines_;
  const size_t concurrency_;

  Mutex mutex_;
  CondVar changed_;
  struct Retry {
    size_t index;
    uint32_t attempt;
  };
  std::multimap<Clock::time_point, Retry> retries_ ABSL_GUARDED_BY(mutex_);
  // Finished, not yet passed to on_result.
  std::map<size_t, std::string> results_ ABSL_GUARDED_BY(mutex_);
  size_t n_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t n_done_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t n_failed_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t n_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace stagecoach::cli
