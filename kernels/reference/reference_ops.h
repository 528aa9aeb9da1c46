// The simplest implementation of Ops: scalar code, double accumulation, row-major weights. Kernel
// tests use it as the oracle and model tests as the fake device. It is slow on purpose.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace stagecoach::kernels {

std::unique_ptr<Ops> MakeReferenceOps();

}  // namespace stagecoach::kernels
