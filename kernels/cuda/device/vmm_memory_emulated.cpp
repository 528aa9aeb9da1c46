// The emulated GPU's memory is host memory.
#include "common/status.h"
#include "kernels/cuda/device/cuda_api.h"
#include "kernels/cuda/device/vmm_memory.h"

namespace stagecoach::kernels::cuda {
namespace {

Buffer UnmappedAfterAllWork(Buffer buffer) {
  const size_t bytes = buffer.bytes;
  void* const data = buffer.data.get();
  return {std::shared_ptr<void>(data,
                                [memory = std::move(buffer.data)](void*) mutable {
                                  cudaFreeHost(nullptr);  // waits for the device
                                  memory.reset();
                                }),
          bytes};
}

}  // namespace

absl::StatusOr<SharedBuffer> AllocateVmm(int32_t, size_t bytes) {
  SC_ASSIGN_OR_RETURN(SharedBuffer shared, AllocateSharedHost(bytes));
  shared.buffer = UnmappedAfterAllWork(std::move(shared.buffer));
  return shared;
}

absl::StatusOr<Buffer> MapVmm(int32_t, int fd, size_t bytes) {
  SC_ASSIGN_OR_RETURN(Buffer buffer, MapSharedHost(fd, bytes));
  return UnmappedAfterAllWork(std::move(buffer));
}

}  // namespace stagecoach::kernels::cuda
