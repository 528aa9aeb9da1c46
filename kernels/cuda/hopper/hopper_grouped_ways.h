// Interface between hopper_grouped.cpp and one translation unit per dtype.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/hopper/hopper_grouped.h"

namespace stagecoach::kernels::cuda {

struct BF16;  // defined in numbers.h for kernels
struct F16;

// Rows of a matrix per copy.
inline constexpr int kMatrixBoxRows = 64;

// T: dtype of x, w and y.
template <typename T>
cudaError_t RunHopperGrouped(const Stream& stream, const HopperGroupedArgs& args);

}  // namespace stagecoach::kernels::cuda
