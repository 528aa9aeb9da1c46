// The reference, as a device that runs ahead: what a step leaves on the host may be read only after
// Wait, which other threads get ahead of. For tests.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace stagecoach::worker {

std::unique_ptr<kernels::Ops> MakeLateOps();

}  // namespace stagecoach::worker
