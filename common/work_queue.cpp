#include "common/work_queue.h"

#include <pthread.h>

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "common/closable_queue.h"

namespace stagecoach {

struct WorkQueue::State {
  ClosableQueue<Task> tasks;
  std::atomic<uint64_t> n_done{0};
};

WorkQueue::WorkQueue(int n_threads, const char* name) : state_(std::make_shared<State>()) {
  for (int i = 0; i < n_threads; ++i) {
    threads_.emplace_back([state = state_, name] {
      pthread_setname_np(pthread_self(), name);
      while (true) {
        absl::StatusOr<Task> task = state->tasks.Pop();
        if (!task.ok()) return;
        (*std::move(task))();
        ++state->n_done;
      }
    });
  }
}

WorkQueue::~WorkQueue() {
  state_->tasks.Close(absl::CancelledError("the work queue has ended"),
                      ClosableQueue<Task>::Rest::kKeep);
  for (std::thread& thread : threads_) thread.join();
}

void WorkQueue::Post(Task task) { state_->tasks.Push(std::move(task)).IgnoreError(); }

size_t WorkQueue::n_queued() const { return state_->tasks.size(); }

uint64_t WorkQueue::n_done() const { return state_->n_done; }

void WorkQueue::Abandon() {
  state_->tasks.Close(absl::CancelledError("the work queue is abandoned"));
  for (std::thread& thread : threads_) thread.detach();
  threads_.clear();
}

}  // namespace stagecoach
