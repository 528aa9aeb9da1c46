// Threads for work beside the main path.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace stagecoach {

// One queue, some threads; with one thread, tasks run in the order they were posted. Thread-safe.
class WorkQueue {
 public:
  using Task = absl::AnyInvocable<void() &&>;

  explicit WorkQueue(int n_threads);
  ~WorkQueue();  // runs what is queued

  void Post(Task task);
  size_t n_queued() const;

 private:
  void Run();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;  // guarded by mutex_
  int n_idle_ = 0;          // guarded by mutex_
  bool stopping_ = false;   // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace stagecoach
