// GPU memory that outlives the process which made it: CUDA's virtual memory management, with a
// file descriptor for the physical memory.
#pragma once

#include "kernels/shared_buffer.h"

namespace stagecoach::kernels::cuda {

// Contents are undefined. Starts at a multiple of 2 MiB. RESOURCE_EXHAUSTED if there is not enough;
// UNIMPLEMENTED if the driver has no such memory. To free it waits for all work of the device, as
// cudaFree does.
absl::StatusOr<SharedBuffer> AllocateVmm(int32_t device, size_t bytes);
// See Ops::MapShared.
absl::StatusOr<Buffer> MapVmm(int32_t device, int fd, size_t bytes);

}  // namespace stagecoach::kernels::cuda
