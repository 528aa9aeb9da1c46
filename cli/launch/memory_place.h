// The memory of one place in the pipeline. The worker there keeps descriptors of its memory here,
// and its replacement takes them over.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cli/launch/child_process.h"
#include "common/fd_store/fd_store.h"
#include "common/fd_store/fd_store_session.h"
#include "common/unique_fd.h"

namespace stagecoach::launch {

// Not thread-safe.
class MemoryPlace {
 public:
  // Connects a new process. Returns its end, which it needs as ChildProcess::kInheritedFd.
  absl::StatusOr<UniqueFd> Connect();
  // Connects a process whose other end is here already.
  void Connect(UniqueFd our_end);
  // The process has ended. What it kept is freed, unless its end says nothing against its memory.
  void End(const ChildExit& exit);

 private:
  FdStore store_;
  std::unique_ptr<FdStoreSession> session_;  // of the process that is connected
};

}  // namespace stagecoach::launch
