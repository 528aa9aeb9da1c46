// The reference, as a device that runs ahead: what a step leaves on the host may be read only after
// Wait, which other threads get ahead of. For tests.
#pragma once

#include <atomic>
#include <memory>

#include "kernels/ops.h"

namespace stagecoach::worker {

// lost: outlives them, if it is not null; true: CheckDevice says so, and calls have failed.
std::unique_ptr<kernels::Ops> MakeLateOps(const std::atomic<bool>* lost = nullptr);

}  // namespace stagecoach::worker
