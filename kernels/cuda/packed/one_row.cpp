#include "kernels/cuda/packed/one_row.h"

namespace stagecoach::kernels::cuda {

bool SuitsOneRow(const Stream& stream, const FusedProduct& fused) {
  using enum PackedForm;
  const PackedPart& w = fused.product.w;
  const bool has_scales = w.scale_kind != ScaleKind::kF32 && w.group_shift != 1;
  const bool has_kernel =
      w.form == kQ4K || w.form == kMxFp4 || ((w.form == kInt4 || w.form == kInt8) && has_scales);
  return has_kernel && fused.product.n_rows == 1 && OneRowShapeOf(stream, w).n_ctas > 0;
}

OneRowShape OneRowShapeOf(const Stream& stream, const PackedPart& w) {
  // More warps on an SM hide the latency of instructions better than more blocks in flight.
  constexpr OneRowShape kShapes[] = {{kMostOneRowCtas, kMostRingStages},
                                     {kMostOneRowCtas, kLeastRingStages},
                                     {2, kMostRingStages},
                                     {2, kLeastRingStages},
                                     {1, kMostRingStages}};
  // Static memory, and what CUDA reserves.
  constexpr size_t kOtherBytes = size_t{6} << 10;
  const size_t input_bytes = static_cast<size_t>(w.n_blocks()) *
                             (kBlockCols * sizeof(uint16_t) + kBlockChunks * sizeof(float));
  for (OneRowShape shape : kShapes) {
    shape.shared_bytes = size_t{kRingWarps} * shape.n_stages * w.block_bytes() + input_bytes;
    if (shape.n_ctas * (shape.shared_bytes + kOtherBytes) <= stream.block_shared_bytes) {
      return shape;
    }
  }
  return {};
}

}  // namespace stagecoach::kernels::cuda
