// Watches the stages of a running pipeline, on a thread that no step can block. It reports a stall
// at once: in the log, through Read, and to `on_change`. A stage that stays stalled ends the
// pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "router/dispatch/stall_watch.h"

namespace stagecoach::router {

struct PipelineWatchHooks {
  // The stages that are stalled, or why they are, changed. Per stage, as Report::stalled. Runs on
  // the watch's thread.
  std::function<void(const std::vector<std::string>& stalled)> on_change;
  // A stage has been stalled for too long: the pipeline is lost. Called once, on the watch's
  // thread.
  std::function<void(const absl::Status&)> on_lost;
};

// Thread-safe.
class PipelineWatch {
 public:
  // One entry per stage.
  PipelineWatch(std::vector<StallWatch::Stage> stages, const StallLimits& limits);
  ~PipelineWatch();

  // Call when all stages have just answered; again, after End, for another epoch. Without an epoch
  // the other methods do nothing.
  void Begin(PipelineWatchHooks hooks);
  // No hook runs after it returns. Do not call it from a hook.
  void End();

  void Sent(const v1::StepPlan& plan);
  void Heard(size_t stage, const v1::StepProgress& progress);
  void Result(uint64_t step);

  struct Report {
    std::vector<std::string> stalled;  // per stage, a description; empty: not stalled
    struct Counts {
      uint64_t silent = 0, step = 0;
    };
    std::vector<Counts> counts;  // per stage: number of stalls of each kind
  };
  Report Read() const;

 private:
  void Run(const std::stop_token& ending);

  const StallLimits limits_;
  PipelineWatchHooks hooks_;
  mutable Mutex mutex_;
  const std::vector<StallWatch::Stage> stages_;
  std::unique_ptr<StallWatch> watch_ ABSL_GUARDED_BY(mutex_);  // null without an epoch
  PlanSizer sizer_ ABSL_GUARDED_BY(mutex_);
  std::vector<Report::Counts> counts_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace stagecoach::router
