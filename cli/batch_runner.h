// Many requests at a time over one connection.
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

// Sends lines of a batch file and hands out their results in the lines' order. A line that does not
// parse or that the server refuses is a result with an error; a full queue (RESOURCE_EXHAUSTED) is
// asked again, later and later.
class BatchRunner {
 public:
  // A JSON object, serialized.
  using ResultFn = std::function<void(const std::string&)>;
  using ProgressFn = std::function<void(size_t n_done, uint64_t n_tokens)>;

  // `model`: its name, for results that tell it.
  BatchRunner(const GrpcClient& client, std::string model, std::vector<BatchInput> lines,
              size_t concurrency);

  // Calls `on_result` for each line in order, as soon as it and all before it are done, and
  // `on_progress` from time to time, both on this thread. Returns how many failed. Call once.
  size_t Run(const ResultFn& on_result, const ProgressFn& on_progress);

 private:
  class Call;
  using Clock = std::chrono::steady_clock;

  void Start(size_t index, uint32_t attempt);
  // From a call's thread.
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
  std::map<size_t, std::string> results_ ABSL_GUARDED_BY(mutex_);  // finished, not handed out
  size_t n_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t n_done_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t n_failed_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t n_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace stagecoach::cli
