// Packs rows as a loader hands them over, on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/packed/packed_layout.h"

namespace stagecoach::kernels::cuda {

// rows: [n_rows] in device memory, in `encoding` (common/encoding/rows.h), without alignment. They
// become rows first_row and on of `part`.
cudaError_t PackStoredRows(const Stream& stream, const PackedPart& part, const Encoding& encoding,
                           int32_t first_row, int32_t n_rows, const void* rows);

// to[r][i] = from[r][order[i]]; elements of 2 or 4 bytes
cudaError_t PermuteInputs(const Stream& stream, const int32_t* order, const void* from,
                          size_t element_bytes, int32_t n_rows, int32_t cols, void* to);

}  // namespace stagecoach::kernels::cuda
