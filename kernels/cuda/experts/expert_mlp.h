// The steps of experts' MLPs: rows grouped by expert, a product with gate (if there are any) and
// up, the activation, a product with down, and each row's sum. How the products read the weights is
// up to the caller.
#pragma once

#include "absl/functional/function_ref.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/scratch_layout.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/hopper/hopper_grouped.h"
#include "kernels/cuda/packed/input_order.h"
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
  int32_t up_rows;  // of an expert's matrix for `up`
  ExpertScratch layout;
  void* scratch;
};

enum class ExpertProduct { kUp, kDown };

// Computes a product. The caller of it leaves `weights` to it.
using MultiplyGroups = absl::FunctionRef<cudaError_t(ExpertProduct, const GroupedGemmArgs&)>;
cudaError_t ExpertMlpOfGroups(const Stream& stream, const ExpertMlpArgs& args,
                              MultiplyGroups multiply);

// The same without grouping, for so few rows that hardly two share an expert. GroupedGemmArgs has
// no groups: row i is that of pair i, which the matrix args.experts[i] multiplies. kUp adds biases
// and activates, too.
cudaError_t ExpertMlpOfPairs(const Stream& stream, const ExpertMlpArgs& args,
                             MultiplyGroups multiply);

// The same with grouped GEMMs for Hopper. The caller of `multiply` leaves `maps` to it. Two kernels
// or more lie between the one that made the tiles and the product.
using MultiplyTiles = absl::FunctionRef<cudaError_t(ExpertProduct, const HopperGroupedArgs&)>;
struct TileProducts {
  MultiplyTiles multiply;
  int32_t tile_rows;
  bool activates;                           // kUp adds biases and activates, too
  InputOrder x_order = InputOrder::kPlain;  // of the inputs of kUp
};
cudaError_t ExpertMlpOfTiles(const Stream& stream, const ExpertMlpArgs& args,
                             const TileProducts& products);
// For products by HopperGroupedGemm.
TileProducts GroupedProducts(const ExpertMlpArgs& args, MultiplyTiles multiply);
// Whether Hopper's grouped GEMMs multiply matrices like these in these calls.
bool SuitTiles(const Stream& stream, const ExpertMlpArgs& args, std::span<const Matrix> up,
               std::span<const Matrix> down);

}  // namespace stagecoach::kernels::cuda
