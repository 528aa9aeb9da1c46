// Why and when the router stops: a signal, the loss of its pipeline, or a stage that shuts down.
#pragma once

#include <atomic>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"
#include "common/process.h"

namespace stagecoach::router {

// Waits for signals during the whole process. While the pipeline is set up, a signal ends the
// process: there is nothing to undo. While it serves, the first signal starts the drain; a second
// one ends the process (ShutdownSignals::SecondEnds). Thread-safe.
class StopRequest {
 public:
  explicit StopRequest(ShutdownSignals* signals);
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  void ServingBegins() { serving_ = true; }

  // OK: finish what runs, then end. Otherwise the pipeline is lost for this reason; the first loss
  // counts.
  void Stop(const absl::Status& cause);
  // A stage must shut down, and is not replaced: acts like a signal to this process.
  void StageDrains(const absl::Status& draining);

  // Not OK: the pipeline is lost, even if a signal came first.
  absl::Status loss() const;
  bool requested() const;
  // Blocks until there is a reason to stop: OK for a signal, otherwise the loss.
  absl::Status Wait() const;

 private:
  void Watch();

  ShutdownSignals* const signals_;
  std::atomic<bool> serving_{false};
  std::atomic<bool> finished_{false};
  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
  std::thread watcher_;  // last: uses all above
};

}  // namespace stagecoach::router
