#include "worker/transport/nccl/testing/fake_nccl.h"
#include "worker/transport/nccl/testing/test_backend.h"

namespace stagecoach::worker {

absl::StatusOr<const NcclApi*> TestNccl() { return FakeNccl(); }
int32_t TestDevice(int32_t, int32_t) { return 0; }

}  // namespace stagecoach::worker
