// y = x w^T for tens of rows and packed weights: a CTA multiplies 256 outputs with all rows. The
// values of the weights are rounded to 16 bits, as in an expanded matrix.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/packed/few_rows.h"

namespace stagecoach::kernels::cuda {

inline constexpr int32_t kMostManyRows = 64;

// Whether the matrix has outputs for at least half of the multiprocessors, and these have enough
// shared memory.
bool SuitsManyRows(const Stream& stream, const PackedPart& part);

// For up to kMostManyRows rows of 16 bits.
cudaError_t ManyRowsBF16(const Stream& stream, const PackedProduct& product);
cudaError_t ManyRowsF16(const Stream& stream, const PackedProduct& product);

}  // namespace stagecoach::kernels::cuda
