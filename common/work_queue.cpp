#include "common/work_queue.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace stagecoach {

struct WorkQueue::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Task> tasks;  // all below: guarded by mutex
  int n_idle = 0;
  bool stopping = false;
  bool abandoned = false;
};

WorkQueue::WorkQueue(int n_threads, const char* name) : state_(std::make_shared<State>()) {
  for (int i = 0; i < n_threads; ++i) {
    threads_.emplace_back([state = state_, name] {
      pthread_setname_np(pthread_self(), name);
      Run(*state);
    });
  }
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkQueue::Post(Task task) {
  bool wake;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->abandoned) return;
    state_->tasks.push_back(std::move(task));
    wake = state_->n_idle > 0;  // a busy thread checks the queue again itself; saves a system call
  }
  if (wake) state_->wake.notify_one();
}

size_t WorkQueue::n_queued() const {
  const std::lock_guard lock(state_->mutex);
  return state_->tasks.size();
}

void WorkQueue::Abandon() {
  std::deque<Task> dropped;  // destroyed outside the lock
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = state_->abandoned = true;
    dropped.swap(state_->tasks);
  }
  state_->wake.notify_all();
  for (std::thread& thread : threads_) thread.detach();
  threads_.clear();
}

void WorkQueue::Run(State& state) {
  std::unique_lock lock(state.mutex);
  while (true) {
    if (state.tasks.empty()) {
      if (state.stopping) return;
      ++state.n_idle;
      state.wake.wait(lock, [&state] { return state.stopping || !state.tasks.empty(); });
      --state.n_idle;
      continue;
    }
    Task task = std::move(state.tasks.front());
    state.tasks.pop_front();
    lock.unlock();
    std::move(task)();
    task = nullptr;  // destroy the captured state outside the lock
    lock.lock();
  }
}

}  // namespace stagecoach
