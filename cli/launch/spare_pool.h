// Worker processes that have started and wait for a place: a worker that dies is replaced by one of
// them at once.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/launch/child_log.h"
#include "cli/launch/child_process.h"
#include "common/unique_fd.h"

namespace stagecoach::launch {

// Not thread-safe. Use from one thread, as children are killed when the thread that starts them
// ends.
class SparePool {
 public:
  // `spec` starts a worker that waits; the pool gives it a socket. At most n wait at a time.
  SparePool(ChildSpec spec, size_t n, ChildLog* log);
  // Kills those that wait.
  ~SparePool();
  SparePool(const SparePool&) = delete;
  SparePool& operator=(const SparePool&) = delete;

  // Starts as many processes as are missing.
  absl::Status Fill();

  struct Spare {
    std::unique_ptr<ChildProcess> process;
    UniqueFd socket;  // our end, for MemoryPlace
  };
  // A waiting process, which from now on listens at `address`. Its events go to `callbacks`.
  // Absent: none waits.
  std::optional<Spare> Take(const std::string& address, ChildCallbacks callbacks);
  size_t n_waiting() const { return waiting_.size(); }

 private:
  class Events;
  struct Waiting {
    Spare spare;
    std::shared_ptr<Events> events;
  };
  absl::Status Start();

  ChildSpec spec_;
  const size_t n_;
  ChildLog* const log_;
  std::list<Waiting> waiting_;
};

}  // namespace stagecoach::launch
