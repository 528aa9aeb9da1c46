#include "router/stop_request.h"

#include <spdlog/spdlog.h>

#include <cstdlib>
#include <string>

#include "common/log_writer.h"

namespace stagecoach::router {

StopRequest::StopRequest(ShutdownSignals* signals)
    : signals_(signals), watcher_([this] { Watch(); }) {}

StopRequest::~StopRequest() {
  finished_ = true;
  signals_->Interrupt();
  watcher_.join();
}

void StopRequest::Stop(const absl::Status& cause) {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    if (cause_.ok()) cause_ = cause;
  }
  changed_.notify_one();
}

void StopRequest::StageDrains(const absl::Status& draining) {
  spdlog::info("{}, so the pipeline stops", std::string(draining.message()));
  Stop(absl::OkStatus());
}

absl::Status StopRequest::loss() const {
  const MutexLock lock(mutex_);
  return cause_;
}

bool StopRequest::requested() const {
  const MutexLock lock(mutex_);
  return stopped_;
}

absl::Status StopRequest::Wait() const {
  MutexLock lock(mutex_);
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_; });
  return cause_;
}

void StopRequest::Watch() {
  while (true) {
    const int signal = signals_->Wait();
    if (finished_) return;
    if (signal == 0) continue;
    if (!serving_) {
      FlushStderr();
      std::_Exit(0);
    }
    Stop(absl::OkStatus());
  }
}

}  // namespace stagecoach::router
