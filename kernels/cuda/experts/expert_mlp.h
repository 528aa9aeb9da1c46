// The steps of experts' MLPs: rows grouped by expert, a product with gate and up, the activation, a
// product with down, and each row's sum. How the products read the weights is up to the caller.
#pragma once

#include "absl/functional/function_ref.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/scratch_layout.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/hopper/hopper_grouped.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// The sizes of a call, and its memory.
struct ExpertCall {
  explicit ExpertCall(const ExpertMlpArgs& args);

  template <typename T>
  T* At(size_t start) const {
    return ExpertScratch::At<T>(scratch, start);
  }

  DType dtype;  // of activations
  int32_t n_experts, hidden, width, n_pairs;
  ExpertScratch layout;
  void* scratch;
};

enum class ExpertProduct { kUp, kDown };

// Computes a product. The caller of it leaves `weights` to it.
using MultiplyGroups = absl::FunctionRef<cudaError_t(ExpertProduct, const GroupedGemmArgs&)>;
cudaError_t ExpertMlpOfGroups(const Stream& stream, const ExpertMlpArgs& args,
                              MultiplyGroups multiply);

// The same with Hopper's grouped GEMMs. The caller of `multiply` leaves `maps` to it. Two kernels
// or more lie between the one that made the tiles and the product.
using MultiplyTiles = absl::FunctionRef<cudaError_t(ExpertProduct, const HopperGroupedArgs&)>;
cudaError_t ExpertMlpOfTiles(const Stream& stream, const ExpertMlpArgs& args,
                             MultiplyTiles multiply);
// Whether Hopper's grouped GEMMs multiply matrices like these in these calls.
bool SuitTiles(const Stream& stream, const ExpertMlpArgs& args, std::span<const Matrix> up,
               std::span<const Matrix> down);

}  // namespace stagecoach::kernels::cuda
