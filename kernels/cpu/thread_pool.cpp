#include "kernels/cpu/thread_pool.h"

#include "common/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stagecoach::kernels {
namespace {

constexpr uint32_t kOpen = 1u << 15;
constexpr uint32_t kInside = kOpen - 1;
constexpr uint32_t kJob = 1u << 16;

// 50 to 200 microseconds, at 40 to 140 cycles per pause. Waking a thread of a virtual machine takes
// as long.
constexpr int kSpins = 4000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
  SC_CHECK(n_threads >= 1 && n_threads <= kMaxThreads);
  workers_.reserve(static_cast<size_t>(n_threads - 1));
  for (int thread = 1; thread < n_threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  door_.fetch_add(kJob);
  door_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunShared(size_t n_tasks, const void* task, TaskFn call) {
  task_ = task;
  call_ = call;
  n_tasks_ = n_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  const uint32_t job = (door_.load(std::memory_order_relaxed) & ~(kJob - 1)) + kJob;
  door_.store(job | kOpen);
  door_.notify_all();

  TakeTasks(0);

  uint32_t door = door_.fetch_and(~kOpen) & ~kOpen;
  for (int spins = 0; (door & kInside) != 0; door = door_.load(std::memory_order_acquire)) {
    if (++spins < kSpins) {
      Pause();
      continue;
    }
    const uint32_t left = left_.load();
    if ((door_.load() & kInside) != 0) left_.wait(left);
  }
}

void ThreadPool::TakeTasks(int thread) {
  for (;;) {
    const size_t index = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (index >= n_tasks_) return;
    call_(task_, index, thread);
  }
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t done = 0;  // the last job that this worker took part in
  int spins = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    uint32_t door = door_.load(std::memory_order_acquire);
    if ((door & kOpen) != 0 && (door & ~(kJob - 1)) != done) {
      if (!door_.compare_exchange_weak(door, door + 1)) continue;
      TakeTasks(thread);
      done = door & ~(kJob - 1);
      Leave();
      spins = 0;
    } else if (++spins < kSpins) {
      Pause();
    } else {
      door_.wait(door);
      spins = 0;
    }
  }
}

void ThreadPool::Leave() {
  const uint32_t before = door_.fetch_sub(1);
  if ((before & kInside) == 1 && (before & kOpen) == 0) {
    left_.fetch_add(1);
    left_.notify_one();
  }
}

}  // namespace stagecoach::kernels
