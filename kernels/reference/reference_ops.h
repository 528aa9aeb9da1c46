// Ops as one would write them down: scalar, double accumulation, row-major weights. The oracle of
// the kernel tests and the fake device of the model tests; slow on purpose.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace stagecoach::kernels {

std::unique_ptr<Ops> MakeReferenceOps();

}  // namespace stagecoach::kernels
