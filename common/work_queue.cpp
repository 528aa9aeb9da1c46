#include "common/work_queue.h"

#include <pthread.h>

#include <deque>
#include <utility>

#include "common/mutex.h"

namespace stagecoach {

struct WorkQueue::State {
  Mutex mutex;
  CondVar wake;
  std::deque<Task> tasks ABSL_GUARDED_BY(mutex);
  int n_idle ABSL_GUARDED_BY(mutex) = 0;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool abandoned ABSL_GUARDED_BY(mutex) = false;
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
    const MutexLock lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkQueue::Post(Task task) {
  bool wake;
  {
    const MutexLock lock(state_->mutex);
    if (state_->abandoned) return;
    state_->tasks.push_back(std::move(task));
    wake = state_->n_idle > 0;  // a busy thread looks again by itself: no system call
  }
  if (wake) state_->wake.notify_one();
}

size_t WorkQueue::n_queued() const {
  const MutexLock lock(state_->mutex);
  return state_->tasks.size();
}

void WorkQueue::Abandon() {
  std::deque<Task> dropped;  // goes outside the lock
  {
    const MutexLock lock(state_->mutex);
    state_->stopping = state_->abandoned = true;
    dropped.swap(state_->tasks);
  }
  state_->wake.notify_all();
  for (std::thread& thread : threads_) thread.detach();
  threads_.clear();
}

void WorkQueue::Run(State& state) {
  MutexLock lock(state.mutex);
  while (true) {
    if (state.tasks.empty()) {
      if (state.stopping) return;
      ++state.n_idle;
      state.wake.wait(lock, [&state]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mutex) {
        return state.stopping || !state.tasks.empty();
      });
      --state.n_idle;
      continue;
    }
    Task task = std::move(state.tasks.front());
    state.tasks.pop_front();
    lock.unlock();
    std::move(task)();
    task = nullptr;  // what it holds goes outside the lock
    lock.lock();
  }
}

}  // namespace stagecoach
