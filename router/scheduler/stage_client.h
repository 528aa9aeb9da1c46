// The interface between the scheduler and the pipeline: plans in, results out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"

namespace stagecoach::v1 {
class KvFetch;
class KvFetched;
class StepPlan;
class StepResult;
}  // namespace stagecoach::v1

namespace stagecoach::router {

// Callbacks run on the client's own threads, or within Fail or Fetch. They must not block.
struct StageClientEvents {
  // Results come in step order, one per plan.
  std::function<void(std::unique_ptr<v1::StepResult>)> on_result;
  // Every stage has read the first n_blocks blocks of a fetch. It comes once for each fetch,
  // unless the pipeline is lost before.
  std::function<void(const v1::KvFetched&)> on_fetched;
  // Called at most once: the pipeline is lost for good. Nothing follows.
  std::function<void(absl::Status)> on_down;
  // A stage or its link is lost, and the client replaces it: no result comes until on_resumed. All
  // stages forget the sequences.
  std::function<void(absl::Status)> on_interrupted;
  // All stages have joined this epoch, and expect its step 1. Plans of other epochs are dropped.
  // kv_kept: the KV blocks of every stage hold what they held when the pipeline was lost.
  std::function<void(uint64_t epoch, bool kv_kept)> on_resumed;
};

class StageClient {
 public:
  virtual ~StageClient() = default;

  // Stores the events and starts the epoch's streams. Call it once.
  virtual absl::Status Start(StageClientEvents events) = 0;
  // Queues a plan for stage 0; never blocks. After on_down it does nothing.
  virtual void Send(std::unique_ptr<v1::StepPlan> plan) = 0;
  // Asks all stages for KV blocks from the store; never blocks. A fetch of another epoch than the
  // one that works is dropped.
  virtual void Fetch(uint64_t epoch, std::unique_ptr<v1::KvFetch> fetch) = 0;
  // Gives up the pipeline, as if a stage were lost: calls on_down with `reason`. Does nothing after
  // a loss or Stop. Any thread.
  virtual void Fail(const absl::Status& reason) = 0;
  // Ends the streams; no callback runs after it returns.
  virtual void Stop() = 0;
};

}  // namespace stagecoach::router
