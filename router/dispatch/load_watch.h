// Notices a load that does not get on: a worker that is stopped, a file system that does not
// answer.
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

  // `name`: "stage 1 (10.0.0.2:9100)". Without movement for `limit`, and no word of it before, a
  // line goes to the log early on, then `give_up` is called, once.
  LoadWatch(std::string name, Clock::duration limit, std::function<void()> give_up);
  ~LoadWatch();

  void Heard(const v1::LoadProgress& progress);
  // No more calls of give_up. DEADLINE_EXCEEDED: it was called, and what had not got on.
  absl::Status End();

 private:
  void Run(const std::stop_token& stop);
  std::string Describe(Clock::time_point now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  const Clock::duration limit_;
  const std::function<void()> give_up_;
  Mutex mutex_;
  v1::LoadProgress last_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point heard_ ABSL_GUARDED_BY(mutex_);  // the last word
  Clock::time_point moved_ ABSL_GUARDED_BY(mutex_);  // the last that told of something new
  absl::Status verdict_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: uses all above
};

}  // namespace stagecoach::router
