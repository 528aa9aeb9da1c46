// Holds file descriptors for a process, so that the memory behind them outlives it, like systemd's
// file descriptor store. The launcher has one store for each place in the pipeline: a worker keeps
// its memory there, and its replacement finds it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/mutex.h"
#include "common/unique_fd.h"

namespace stagecoach {

struct KeptFd {
  std::string description;  // says what the memory holds; only workers read it
  UniqueFd fd;
};

// Thread-safe.
class FdStore {
 public:
  // Replaces what it holds under this name.
  void Keep(const std::string& name, KeptFd kept);
  // A copy, or nothing. The store goes on holding its own.
  std::optional<KeptFd> Get(const std::string& name) const;
  void Drop(const std::string& name);
  void Clear();

 private:
  mutable Mutex mutex_;
  std::map<std::string, KeptFd> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach
