// Interface between hopper_gemm.cpp and one translation unit per dtype.
#pragma once

#include <span>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

struct BF16;  // defined in numbers.h for kernels
struct F16;

struct HopperGemmCall {
  const GemmArgs* gemm;
  Act out;                // y, or the output of the activation
  Activation activation;  // if gated
};

struct HopperGemmWay {
  int n_rows, n_outputs;  // per tile
  int n_weights;          // rows of w per tile
  int n_blocks;           // CTAs per cluster
  int n_below;            // row tiles per cluster
  int n_parts;            // split-K parts
  cudaError_t (*run)(const Stream& stream, const HopperGemmCall& call);
};

// T: dtype of x and w.
template <typename T>
std::span<const HopperGemmWay> HopperWays(DType y);
template <typename T>
std::span<const HopperGemmWay> HopperGatedWays();

}  // namespace stagecoach::kernels::cuda
