// Why and when a router stops.
#pragma once

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "common/log_writer.h"
#include "common/mutex.h"
#include "common/process.h"

namespace stagecoach::router {

// Waits for signals during the whole process. While the pipeline is set up, a signal ends the
// process: there is nothing to undo. While it serves, the first signal starts the drain; a second
// one ends the process (ShutdownSignals::SecondEnds).
class StopRequest {
 public:
  explicit StopRequest(ShutdownSignals* signals)
      : signals_(signals), watcher_([this] { Watch(); }) {}
  ~StopRequest() {
    finished_ = true;
    signals_->Interrupt();
    watcher_.join();
  }

  void ServingBegins() { serving_ = true; }

  // The pipeline is lost or, with OK, must shut down. The first loss counts.
  void Lost(const absl::Status& status) {
    {
      MutexLock lock(mutex_);
      stopped_ = true;
      if (cause_.ok()) cause_ = status;
    }
    changed_.notify_one();
  }

  // Not OK: the pipeline is lost, even if a signal came first.
  absl::Status loss() {
    const MutexLock lock(mutex_);
    return cause_;
  }

  // A stage must shut down, and is not replaced: acts like a signal to this process.
  void StageDrains(const absl::Status& draining) {
    spdlog::info("{}, so the pipeline stops", std::string(draining.message()));
    Lost(absl::OkStatus());
  }

  bool requested() {
    const MutexLock lock(mutex_);
    return stopped_;
  }

  // Blocks until there is a reason to stop: OK for a signal, otherwise the loss.
  absl::Status Wait() {
    MutexLock lock(mutex_);
    changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_; });
    return cause_;
  }

 private:
  void Watch() {
    while (true) {
      const int signal = signals_->Wait();
      if (finished_) return;
      if (signal == 0) continue;
      if (!serving_) {
        FlushStderr();
        std::_Exit(0);
      }
      {
        MutexLock lock(mutex_);
        stopped_ = true;
      }
      changed_.notify_one();
    }
  }

  ShutdownSignals* const signals_;
  std::atomic<bool> serving_{false};
  std::atomic<bool> finished_{false};
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
  std::thread watcher_;  // last: uses all above
};

}  // namespace stagecoach::router
