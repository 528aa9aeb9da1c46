// Detects a load that makes no progress, for example because the worker is stopped or a file system
// hangs.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

// Thread-safe.
class LoadWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // `name`: "stage 1 (10.0.0.2:9100)". If there is no progress for a while, writes one log line. If
  // there is none for `limit`, calls `give_up` once.
  LoadWatch(std::string name, Clock::duration limit, std::function<void()> give_up);
  ~LoadWatch();

  void Heard(const v1::LoadProgress& progress);
  // After it returns, give_up is not called any more. DEADLINE_EXCEEDED: give_up was called; the
  // message describes the stall.
  absl::Status End();

 private:
  void Run(const std::stop_token& stop);
  std::string Describe(Clock::time_point now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  const Clock::duration limit_;
  const std::function<void()> give_up_;
  Mutex mutex_;
  v1::LoadProgress last_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point heard_ ABSL_GUARDED_BY(mutex_);  // time of the last message
  Clock::time_point moved_ ABSL_GUARDED_BY(mutex_);  // time of the last message with progress
  absl::Status verdict_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: uses all above
};

}  // namespace stagecoach::router
