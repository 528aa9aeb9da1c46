// A process's side of its FdStore.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fd_store/fd_store.h"
#include "common/mutex.h"
#include "common/unique_fd.h"

namespace stagecoach::v1 {
class FdStoreRequest;
}

namespace stagecoach {

// Thread-safe. Every call may return UNAVAILABLE: the process that has the store is gone.
class FdStoreClient {
 public:
  explicit FdStoreClient(UniqueFd socket);

  // Replaces what the store holds under this name. The store gets a copy of `fd`. `description`
  // says what the memory holds, at most about 60 KiB.
  absl::Status Keep(const std::string& name, const std::string& description, const UniqueFd& fd);
  // A copy of what was kept by this process or its predecessor, or nothing.
  absl::StatusOr<std::optional<KeptFd>> Get(const std::string& name);
  // The store forgets it. The memory lives on while a process maps it.
  absl::Status Drop(const std::string& name);

 private:
  absl::StatusOr<std::optional<KeptFd>> Call(const v1::FdStoreRequest& request, int fd = -1);

  Mutex mutex_;  // held during a call
  const UniqueFd socket_;
};

}  // namespace stagecoach
