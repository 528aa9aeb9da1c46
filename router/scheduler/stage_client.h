// The seam between the scheduler and the pipeline: plans in, results out.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"

namespace stagecoach::v1 {
class StepPlan;
class StepResult;
}  // namespace stagecoach::v1

namespace stagecoach::router {

// Callbacks come from the client's own threads, or from Fail, and must not block.
struct StageClientEvents {
  // Results come in step order, one for every plan.
  std::function<void(std::unique_ptr<v1::StepResult>)> on_result;
  // At most once: a stage or its link is lost. No result follows.
  std::function<void(absl::Status)> on_down;
};

class StageClient {
 public:
  virtual ~StageClient() = default;

  // Takes the events and starts the epoch's streams. Once.
  virtual absl::Status Start(StageClientEvents events) = 0;
  // Queues a plan for stage 0; never blocks. After on_down it does nothing.
  virtual void Send(std::unique_ptr<v1::StepPlan> plan) = 0;
  // The pipeline is of no more use, as if a stage were lost: on_down hears `reason`. After a loss
  // or Stop nothing happens. From any thread.
  virtual void Fail(const absl::Status& reason) = 0;
  // Ends the streams; no callback runs after it returns.
  virtual void Stop() = 0;
};

}  // namespace stagecoach::router
