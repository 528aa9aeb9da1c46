// y = x w^T for few rows: bound by the bandwidth at which w is read, so tensor cores do the
// arithmetic on what arrives in registers, and the next kernel's weights are on their way while
// this one ends.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/step/scratch_layout.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Whether there is such a kernel: 16-bit x and w of one type, a multiple of 32 inputs.
bool HasSkinnyGemm(DType x, DType w, int32_t cols);

// As Ops::Gemm, for up to kMaxSkinnyRows rows. REQUIRES: HasSkinnyGemm; y float32 or as x.
cudaError_t SkinnyGemm(const Stream& stream, const GemmArgs& args);

// As Ops::GemmActivate, where the activation is gated; without a bias. HasSkinnyGemm, widths that
// are a multiple of 8, up to kMaxGatedRows (with more the library is faster). What goes into the
// activation is rounded as a product's y would be.
inline constexpr int32_t kMaxGatedRows = 4;
bool HasSkinnyGatedGemm(const GemmArgs& gemm, const ActivationArgs& activation);
cudaError_t SkinnyGatedGemm(const Stream& stream, const GemmArgs& gemm,
                            const ActivationArgs& activation);

// As Ops::NormGemm and Ops::NormGemmActivate, but that norm.out is not written: of one row, which
// every block norms for itself. Not for LayerNorm, nor rows wider than 4096. The same numbers as by
// Norm and then SkinnyGemm or SkinnyGatedGemm, but for the order in which a row's squares are added
// (where it is not 4096 wide). REQUIRES: HasNormedSkinnyGemm, of the second HasSkinnyGatedGemm too.
bool HasNormedSkinnyGemm(const NormArgs& norm, const GemmArgs& gemm);
cudaError_t NormedSkinnyGemm(const Stream& stream, const NormArgs& norm, const GemmArgs& gemm);
cudaError_t NormedSkinnyGatedGemm(const Stream& stream, const NormArgs& norm, const GemmArgs& gemm,
                                  const ActivationArgs& activation);

// Of RowGroups. Pointers are to device memory.
struct GroupedGemmArgs {
  const void* x;
  DType dtype;                 // of x and the weights
  const void* const* weights;  // [matrices] of [rows, cols]
  int32_t rows, cols;
  const RowGroup* groups;   // [n_groups]
  const int32_t* n_groups;  // [1]
  int32_t max_groups;       // on the host
  const int32_t* x_rows;    // row of x of each row, divided by x_divisor; null: itself
  int32_t x_divisor;
  const int32_t* y_rows;  // row of y of each row; null: itself
  Act y;                  // [., rows]: of `dtype`, or float32
};
// Any dtype and shape; float32 and odd widths by a plain kernel.
cudaError_t GroupedGemm(const Stream& stream, const GroupedGemmArgs& args);

}  // namespace stagecoach::kernels::cuda
