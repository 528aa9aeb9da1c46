// For tests: the reference Ops, but with the timing of a device that runs ahead. Results of a step
// on the host may be read only after Wait, while other threads queue further work. Its tuning is
// the number of rehearsals so far, in decimal.
#pragma once

#include <atomic>
#include <memory>

#include "kernels/ops.h"

namespace stagecoach::worker {

// lost: may be null, otherwise outlives the result. While it is true, CheckDevice reports a lost
// device and calls fail. held: likewise. While it is true, Synchronize does not return.
std::unique_ptr<kernels::Ops> MakeLateOps(const std::atomic<bool>* lost = nullptr,
                                          const std::atomic<bool>* held = nullptr);

}  // namespace stagecoach::worker
