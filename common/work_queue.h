// Threads for work beside the main path.
#pragma once

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace stagecoach {

// One queue, some threads; with one thread, tasks run in the order they were posted. Thread-safe.
class WorkQueue {
 public:
  using Task = absl::AnyInvocable<void() &&>;

  explicit WorkQueue(int n_threads, const char* name = "work");  // of the threads: 15 characters
  ~WorkQueue();  // runs what is queued, unless it is abandoned
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void Post(Task task);
  size_t n_queued() const;
  // Drops what is queued; tasks under way go on, and nobody waits for them: they must own all that
  // they use. Nothing is run that is posted later.
  void Abandon();

 private:
  struct State;

  const std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace stagecoach
