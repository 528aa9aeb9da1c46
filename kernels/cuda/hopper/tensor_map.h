// Tensor maps (TMA descriptors) of row-major matrices with 16-bit elements.
#pragma once

#include <cuda.h>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

inline constexpr int kSlab = 64;  // inputs: 128 bytes per row, the swizzle width

// `parts` matrices [rows, cols], one below the other.
struct MappedShape {
  int32_t parts, rows;
  int32_t cols;  // a multiple of kSlab
};
// What one copy moves: `rows` rows of `slabs` slabs, of `parts` matrices.
struct MapBox {
  int rows, slabs = 1, parts = 1;
};

// The tensor is [parts, cols / kSlab, rows, kSlab], with 128-byte swizzling; what lies outside
// reads as zero. `of` is device memory, aligned to 16 bytes. Returns cudaErrorNotSupported if the
// driver cannot encode maps.
cudaError_t MakeTensorMap(ConstAct of, const MappedShape& shape, const MapBox& box,
                          CUtensorMap* map);

}  // namespace stagecoach::kernels::cuda
