// Products of experts with packed weights and with Hopper's instructions: the weights become
// operands of warpgroup MMAs in registers, as in hopper_rows.h, and each matrix multiplies rows of
// its own, as in hopper/hopper_grouped.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/hopper/hopper_grouped.h"
#include "kernels/cuda/packed/input_order.h"
#include "kernels/cuda/packed/packed_layout.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Two blocks of a tile's weights fit into shared memory beside x and results, whatever the tile, if
// a block has no more bytes. Only 8-bit codes in groups of 32 with float32 scales have.
inline constexpr int32_t kMostExpertsBlockBytes = 4512;

// Whether this build and device have the kernel, and it takes the part, which is a whole matrix:
// rows of whole units, and blocks that fit. If gated, the first half of the outputs are gates of
// the second.
bool SuitsHopperExperts(const Stream& stream, const PackedPart& part, bool gated);

// Rows per tile that suit `n_rows` rows of `n_matrices` matrices: 16, 64 or 128.
int32_t HopperExpertsTileRows(int32_t n_rows, int32_t n_matrices);
inline constexpr int32_t kHopperExpertsTileRows[] = {16, 64, 128};  // for tests

struct HopperExpertsArgs {
  // x: 16 bits; its inputs are in the order OrderOfLanes(w.form). maps has no effect.
  // y: of x's dtype; if gated, the activation is rounded like y, and so are its inputs before.
  HopperGroupedArgs gemm;
  PackedPart w;                // of each matrix, without its address
  const void* const* weights;  // the memory of each matrix, on the device
  int64_t tiles_at;            // bytes from a matrix's memory to the part's tiles
  // If gated.
  InputOrder y_order = InputOrder::kPlain;
  ClampedGlu clamped = {};
  const float* bias = nullptr;  // [matrices, w.rows], added before the sums are rounded; or null
};
// A row's result does not depend on other rows, nor on tile_rows. What HopperGroupedGemm says of
// its tiles holds here, too. REQUIRES: SuitsHopperExperts
cudaError_t HopperExpertsBF16(const Stream& stream, const HopperExpertsArgs& args);
cudaError_t HopperExpertsF16(const Stream& stream, const HopperExpertsArgs& args);

}  // namespace stagecoach::kernels::cuda
