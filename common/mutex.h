// std::mutex and std::condition_variable with annotations. With them, clang's -Wthread-safety
// checks that a member with ABSL_GUARDED_BY(mutex_) is used only while mutex_ is held, and that a
// function with ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) is called only while it is held
// (tests/lint/clang.py). gcc ignores the annotations. The wrapped locks are the standard library's,
// because the thread sanitizer understands them. Functions that only forward have the standard
// library's names.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"  // IWYU pragma: export

namespace stagecoach {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex from construction to destruction, except between unlock() and lock().
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() ABSL_UNLOCK_FUNCTION() { lock_.unlock(); }
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { lock_.lock(); }

 private:
  friend class CondVar;
  template <typename Rep, typename Period>
  friend bool WaitForStop(MutexLock& lock, const std::stop_token& stop,
                          const std::chrono::duration<Rep, Period>& time);
  std::unique_lock<std::mutex> lock_;
};

// A predicate reads guarded members, but the analysis does not know that wait() calls it with the
// lock held. The predicate therefore needs its own annotation:
//   changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return done_; });
class CondVar {
 public:
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

  // These three have no predicate and may return early without a reason.
  void wait(MutexLock& lock) { changed_.wait(lock.lock_); }
  template <typename Clock, typename Duration>
  std::cv_status wait_until(MutexLock& lock,
                            const std::chrono::time_point<Clock, Duration>& deadline) {
    return changed_.wait_until(lock.lock_, deadline);
  }
  template <typename Rep, typename Period>
  std::cv_status wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& time) {
    return changed_.wait_for(lock.lock_, time);
  }

  template <typename Predicate>
  void wait(MutexLock& lock, Predicate until) {
    changed_.wait(lock.lock_, std::move(until));
  }
  // These two return the predicate's last value.
  template <typename Clock, typename Duration, typename Predicate>
  bool wait_until(MutexLock& lock, const std::chrono::time_point<Clock, Duration>& deadline,
                  Predicate until) {
    return changed_.wait_until(lock.lock_, deadline, std::move(until));
  }
  template <typename Rep, typename Period, typename Predicate>
  bool wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& time, Predicate until) {
    return changed_.wait_for(lock.lock_, time, std::move(until));
  }

 private:
  std::condition_variable changed_;
};

// Releases `lock` and waits until `stop` is requested or `time` has passed. Returns whether `stop`
// is requested.
template <typename Rep, typename Period>
bool WaitForStop(MutexLock& lock, const std::stop_token& stop,
                 const std::chrono::duration<Rep, Period>& time) {
  std::condition_variable_any stopped;  // std::condition_variable takes no stop token
  stopped.wait_for(lock.lock_, stop, time, [&stop] { return stop.stop_requested(); });
  // wait_for of GCC 12 returns false if the stop comes right after its first look.
  return stop.stop_requested();
}

// The same for a thread that holds no lock.
template <typename Rep, typename Period>
bool WaitForStop(const std::stop_token& stop, const std::chrono::duration<Rep, Period>& time) {
  Mutex mutex;
  MutexLock lock(mutex);
  return WaitForStop(lock, stop, time);
}

}  // namespace stagecoach
