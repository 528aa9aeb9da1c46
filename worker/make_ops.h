// Makes the kernels for the device that a worker computes on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace stagecoach::worker {

struct DeviceOptions {
  std::string device = "cpu";  // or "cuda" or "cuda:N"
  int32_t n_threads = 1;       // for a CPU
  bool batch_invariant = false;
  uint64_t disturbance_seed = 0;  // for a GPU, in tests; 0: off
  uint64_t reserved_bytes = 0;    // of a GPU's memory, left to other processes
};

// INVALID_ARGUMENT if the device does not exist or this build has no kernels for it.
absl::StatusOr<std::unique_ptr<kernels::Ops>> MakeOps(const DeviceOptions& options);

}  // namespace stagecoach::worker
