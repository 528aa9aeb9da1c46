// Detects threads of the router that do not get on. Streams depend on them, so clients would wait
// for ever; no stage is at fault, so StallWatch sees nothing.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/stopped_threads.h"
#include "common/work_queue.h"
#include "router/scheduler/scheduler.h"

namespace stagecoach::router {

struct ThreadWatchLimits {
  using Duration = std::chrono::steady_clock::duration;

  Duration interval = std::chrono::milliseconds(250);  // between an answer and the next question
  Duration tick = std::chrono::milliseconds(100);      // between two looks
  // Without an answer, or stopped, for this long: stalled. A look comes up to a tick later, so a
  // stall is reported within 1 s.
  Duration notice = std::chrono::milliseconds(750);
  Duration end = std::chrono::seconds(10);  // the router is lost
};

struct ThreadWatchHooks {
  std::function<void(bool stalled)> on_change;
  // At most once; the watch ends with it. A thread cannot be joined any more.
  std::function<void(const std::string& why)> on_lost;
};

// Hooks are called on the watch's own thread. Thread-safe, but for Begin and End.
class ThreadWatch {
 public:
  // Asks a thread; the function that it returns says whether the thread has answered.
  using Ask = std::function<std::function<bool()>()>;
  struct Asked {
    std::string name;  // "scheduler"
    Ask ask;
  };

  explicit ThreadWatch(const ThreadWatchLimits& limits) : limits_(limits) {}
  ~ThreadWatch() { End(); }
  ThreadWatch(const ThreadWatch&) = delete;
  ThreadWatch& operator=(const ThreadWatch&) = delete;

  // `stopped` lists all threads that cannot run now. A thread called "log" may be stopped: nobody
  // waits for it.
  void Begin(std::vector<Asked> asked, ThreadWatchHooks hooks,
             std::function<std::vector<StoppedThread>()> stopped = StoppedThreads);
  // No thread is asked afterwards.
  void End();

  // Asks for a snapshot.
  static Asked AskScheduler(Scheduler* scheduler);
  // Asks a queue with one thread. A long backlog is no stall: each finished task is an answer.
  static Asked AskQueue(std::string name, WorkQueue* queue);

  // How a thread stalls, in words; empty: none does.
  std::string Stalled() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Look {
    std::string text;           // of the thread that has been stalled longest; empty: none
    Clock::duration waited{0};  // how long it has been stalled
  };

  void Run(const std::stop_token& ending);
  // Sets stalled_. If a stall begins or ends with it, logs that and calls on_change, without the
  // lock.
  void SetStalled(const std::string& stalled);

  const ThreadWatchLimits limits_;
  std::vector<Asked> asked_;
  ThreadWatchHooks hooks_;
  std::function<std::vector<StoppedThread>()> stopped_;
  mutable Mutex mutex_;
  std::string stalled_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace stagecoach::router
