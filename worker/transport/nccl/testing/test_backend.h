// The devices for the transport's tests: emulated GPUs or real ones.
#pragma once

#include <cstdint>

#include "worker/transport/nccl/nccl_api.h"

namespace stagecoach::worker {

absl::StatusOr<const NcclApi*> TestNccl();
// The device of stage `stage` of `n_stages`. -1: there are fewer GPUs than the test needs.
int32_t TestDevice(int32_t stage, int32_t n_stages);

}  // namespace stagecoach::worker
