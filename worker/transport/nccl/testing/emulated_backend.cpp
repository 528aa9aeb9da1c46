#include "kernels/cuda/emulation/devices.h"
#include "worker/transport/nccl/testing/fake_nccl.h"
#include "worker/transport/nccl/testing/test_backend.h"

namespace stagecoach::worker {

absl::StatusOr<const NcclApi*> TestNccl() { return FakeNccl(); }
int32_t TestDevice(int32_t stage, int32_t n_stages) {
  simt::SetDeviceCount(n_stages);
  return stage;
}

}  // namespace stagecoach::worker
