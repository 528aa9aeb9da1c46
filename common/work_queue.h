// Threads for work off the critical path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace stagecoach {

// One queue served by a fixed number of threads. With one thread, tasks run in the order they were
// posted. Thread-safe.
class WorkQueue {
 public:
  using Task = absl::AnyInvocable<void() &&>;

  explicit WorkQueue(int n_threads, const char* name = "work");  // name: at most 15 characters
  ~WorkQueue();  // runs all queued tasks first, unless abandoned
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void Post(Task task);
  size_t n_queued() const;
  uint64_t n_done() const;  // tasks that have returned
  // Drops queued tasks and ignores tasks posted later. Running tasks continue and nobody waits for
  // them, so they must own everything they use.
  void Abandon();

 private:
  struct State;

  const std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace stagecoach
