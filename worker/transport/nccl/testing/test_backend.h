// What the transport's tests run on: emulated GPUs, or real ones.
#pragma once

#include <cstdint>

#include "worker/transport/nccl/nccl_api.h"

namespace stagecoach::worker {

absl::StatusOr<const NcclApi*> TestNccl();
// Of stage `stage` of `n_stages`; -1: there are not as many GPUs as the test needs.
int32_t TestDevice(int32_t stage, int32_t n_stages);

}  // namespace stagecoach::worker
