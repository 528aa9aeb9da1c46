// Watches the stages of a pipeline while it serves, from a thread that nothing of a step holds up.
// A stage that stalls is told at once: in the log, to whoever asks, and to `on_change`. One that
// goes on stalling ends the pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "router/dispatch/stall_watch.h"

namespace stagecoach::router {

struct PipelineWatchHooks {
  // Some stage stalls, or none does any more. From the watch's thread.
  std::function<void(bool stalled)> on_change;
  // A stage has stalled for too long: the pipeline is lost. Once, from the watch's thread.
  std::function<void(const absl::Status&)> on_lost;
};

// Thread-safe.
class PipelineWatch {
 public:
  // By stage. Begin comes before everything else.
  PipelineWatch(std::vector<StallWatch::Stage> stages, const StallLimits& limits);
  ~PipelineWatch();

  // All stages have just answered.
  void Begin(PipelineWatchHooks hooks);
  // No hook runs after it returns. Not from a hook.
  void End();

  void Sent(const v1::StepPlan& plan);
  void Heard(size_t stage, const v1::StepProgress& progress);
  void Result(uint64_t step);

  struct Report {
    std::vector<std::string> stalled;  // by stage, in words; empty: it gets on
    struct Counts {
      uint64_t silent = 0, step = 0;
    };
    std::vector<Counts> counts;  // by stage: how often it has stalled, and in what way
  };
  Report Read() const;

 private:
  void Run();

  const StallLimits limits_;
  PipelineWatchHooks hooks_;
  mutable Mutex mutex_;
  CondVar ended_;
  std::vector<StallWatch::Stage> stages_ ABSL_GUARDED_BY(mutex_);  // until Begin
  std::unique_ptr<StallWatch> watch_ ABSL_GUARDED_BY(mutex_);      // from Begin on
  PlanSizer sizer_ ABSL_GUARDED_BY(mutex_);
  std::vector<Report::Counts> counts_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace stagecoach::router
