// Detects a scheduler that does not answer. Its thread drives every stream, so clients would wait
// for ever; no stage is at fault, so StallWatch sees nothing.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "common/mutex.h"
#include "router/scheduler/scheduler.h"

namespace stagecoach::router {

struct SchedulerWatchLimits {
  using Duration = std::chrono::steady_clock::duration;

  Duration interval = std::chrono::milliseconds(250);  // between an answer and the next question
  Duration tick = std::chrono::milliseconds(100);      // between two looks for an answer
  Duration notice = std::chrono::seconds(1);           // without an answer: it is stalled
  Duration end = std::chrono::seconds(10);             // it is lost
};

struct SchedulerWatchHooks {
  std::function<void(bool stalled)> on_change;
  // At most once; the watch ends with it. The scheduler's thread cannot be joined any more.
  std::function<void(const std::string& why)> on_lost;
};

// Hooks are called on the watch's own thread. Thread-safe, but for End.
class SchedulerWatch {
 public:
  // Asks the scheduler; the function that it returns says whether the answer has come.
  using Ask = std::function<std::function<bool()>()>;

  SchedulerWatch(Ask ask, const SchedulerWatchLimits& limits, SchedulerWatchHooks hooks);
  ~SchedulerWatch() { End(); }
  SchedulerWatch(const SchedulerWatch&) = delete;
  SchedulerWatch& operator=(const SchedulerWatch&) = delete;

  // Asks `scheduler` for snapshots.
  static Ask ForSnapshots(Scheduler* scheduler);

  // How it stalls, in words; empty: it does not.
  std::string Stalled() const;

  // The scheduler is not asked afterwards.
  void End();

 private:
  using Clock = std::chrono::steady_clock;

  void Run();
  // Waits for the answer. Returns false if the watch must end.
  bool Await(const std::function<bool()>& answered);
  // Waits for `time`, or less if the watch must end. Returns whether it must.
  bool EndsWithin(Clock::duration time);
  // Sets stalled_. If a stall begins or ends with it, logs that and calls on_change, without the
  // lock.
  void SetStalled(const std::string& stalled);

  const Ask ask_;
  const SchedulerWatchLimits limits_;
  const SchedulerWatchHooks hooks_;
  mutable Mutex mutex_;
  CondVar ending_changed_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::string stalled_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: uses all above
};

}  // namespace stagecoach::router
