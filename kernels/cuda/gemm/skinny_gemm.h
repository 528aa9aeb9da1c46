// y = x w^T for few rows. The bandwidth for reading w is the limit, so tensor cores compute on the
// weights as they arrive, and the next kernel fetches its weights while this one ends.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/scratch_layout.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Whether the kernel supports this: x and w have the same 16-bit dtype, and cols is a multiple of
// 32.
bool HasSkinnyGemm(DType x, DType w, int32_t cols);

// See Ops::Gemm. For up to kMaxSkinnyRows rows. REQUIRES: HasSkinnyGemm; y is float32 or has x's
// dtype.
cudaError_t SkinnyGemm(const Stream& stream, const GemmArgs& args);

// Ops::GemmActivate with a gated activation and without a bias. Needs HasSkinnyGemm, a width that
// is a multiple of 8, and at most kMaxGatedRows rows (with more, cuBLASLt is faster). The input of
// the activation is rounded like y of a GEMM.
inline constexpr int32_t kMaxGatedRows = 4;
bool HasSkinnyGatedGemm(const GemmArgs& gemm, const ActivationArgs& activation);
// The same, whatever the weights are.
bool SuitsSkinnyGated(const GemmArgs& gemm, const ActivationArgs& activation);
cudaError_t SkinnyGatedGemm(const Stream& stream, const GemmArgs& gemm,
                            const ActivationArgs& activation);

// Ops::NormGemm and Ops::NormGemmActivate for one row, except that they do not write norm.out:
// every CTA normalizes the row for itself. Not for LayerNorm, nor for rows wider than 4096. Results
// equal those of Norm followed by SkinnyGemm or SkinnyGatedGemm, except that the squares of a row
// may be added in a different order (the same order if the width is 4096). REQUIRES:
// HasNormedSkinnyGemm; for the second also HasSkinnyGatedGemm.
bool HasNormedSkinnyGemm(const NormArgs& norm, const GemmArgs& gemm);
bool SuitsNormedSkinny(const NormArgs& norm, const GemmArgs& gemm);  // whatever the weights are
cudaError_t NormedSkinnyGemm(const Stream& stream, const NormArgs& norm, const GemmArgs& gemm);
cudaError_t NormedSkinnyGatedGemm(const Stream& stream, const NormArgs& norm, const GemmArgs& gemm,
                                  const ActivationArgs& activation);

// GEMMs of RowGroups. Pointers are to device memory.
struct GroupedGemmArgs {
  const void* x;
  DType dtype;                 // of x and of the weights
  const void* const* weights;  // [matrices], each [rows, cols]
  int32_t rows, cols;
  const RowGroup* groups;   // [n_groups]
  const int32_t* n_groups;  // [1]
  int32_t max_groups;       // known on the host: upper bound of *n_groups
  const int32_t* x_rows;    // per row: its row in x, times x_divisor; null: the same row
  int32_t x_divisor;
  const int32_t* y_rows;  // per row: its row in y; null: the same row
  Act y;                  // [., rows]; of `dtype` or float32
};
// Any dtype and shape; float32 and other widths use a simple kernel.
cudaError_t GroupedGemm(const Stream& stream, const GroupedGemmArgs& args);

}  // namespace stagecoach::kernels::cuda
