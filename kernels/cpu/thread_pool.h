// Threads that process the tasks of one kernel together with the calling thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace stagecoach::kernels {

// Between kernels the workers spin for about 100 microseconds, which covers the gaps within a step,
// and then sleep. Only one thread at a time may call Run.
class ThreadPool {
 public:
  // n_threads includes the caller; 1 runs everything inline.
  // REQUIRES: 1 <= n_threads <= kMaxThreads.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  static constexpr int kMaxThreads = 1024;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(index, thread) for every index in [0, n_tasks), in any order, and returns when all
  // are done. `thread` is in [0, n_threads), and no two concurrent calls have the same one. Results
  // must not depend on which thread runs a task.
  template <typename Task>
  void Run(size_t n_tasks, const Task& task) {
    if (n_tasks <= 1 || workers_.empty()) {
      for (size_t i = 0; i < n_tasks; ++i) task(i, 0);
      return;
    }
    RunShared(n_tasks, &task, [](const void* t, size_t index, int thread) {
      (*static_cast<const Task*>(t))(index, thread);
    });
  }

 private:
  using TaskFn = void (*)(const void* task, size_t index, int thread);

  void RunShared(size_t n_tasks, const void* task, TaskFn call);
  void WorkerLoop(int thread);
  void TakeTasks(int thread);
  void Leave();

  // The current job; only written while no worker is inside.
  const void* task_ = nullptr;
  TaskFn call_ = nullptr;
  size_t n_tasks_ = 0;

  // A worker that wakes up late finds the job closed and sleeps again. So the caller never waits
  // for a thread that the OS has not scheduled yet. Bits 31..16: job number; bit 15: open;
  // bits 14..0: workers inside.
  alignas(64) std::atomic<uint32_t> door_{0};
  alignas(64) std::atomic<size_t> next_task_{0};
  alignas(64) std::atomic<uint32_t> left_{0};  // changes when the last worker leaves a closed job
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace stagecoach::kernels
