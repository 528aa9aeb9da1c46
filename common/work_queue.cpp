#include "common/work_queue.h"

#include <utility>

namespace stagecoach {

WorkQueue::WorkQueue(int n_threads) {
  for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkQueue::~WorkQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkQueue::Post(Task task) {
  bool wake;
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    wake = n_idle_ > 0;  // a busy thread looks again by itself: no system call
  }
  if (wake) wake_.notify_one();
}

size_t WorkQueue::n_queued() const {
  std::lock_guard lock(mutex_);
  return tasks_.size();
}

void WorkQueue::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (tasks_.empty()) {
      if (stopping_) return;
      ++n_idle_;
      wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      --n_idle_;
      continue;
    }
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    std::move(task)();
    task = nullptr;  // what it holds goes outside the lock
    lock.lock();
  }
}

}  // namespace stagecoach
