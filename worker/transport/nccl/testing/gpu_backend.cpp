#include <cstdlib>

#include "worker/transport/nccl/testing/test_backend.h"

namespace stagecoach::worker {
namespace {

// The same settings as in a worker, made before CUDA starts.
[[maybe_unused]] const bool environment_is_set = [] {
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  return true;
}();

}  // namespace

absl::StatusOr<const NcclApi*> TestNccl() { return LoadNccl(""); }
int32_t TestDevice(int32_t stage, int32_t n_stages) {
  int n_devices = 0;
  if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices < n_stages) return -1;
  return stage;
}

}  // namespace stagecoach::worker
