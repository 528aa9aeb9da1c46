// Between hopper_gemm.cpp and one unit a type.
#pragma once

#include <span>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

struct BF16;  // numbers.h, for kernels
struct F16;

struct HopperGemmCall {
  const GemmArgs* gemm;
  Act out;                // y, or what is activated
  Activation activation;  // where gated
};

struct HopperGemmWay {
  int n_rows, n_outputs;  // of a tile
  int n_weights;          // of w for one
  int n_blocks;           // of a cluster
  int n_below;            // tiles of a cluster
  int n_parts;            // that inputs are shared out in
  cudaError_t (*run)(const Stream& stream, const HopperGemmCall& call);
};

// T: of x and w.
template <typename T>
std::span<const HopperGemmWay> HopperWays(DType y);
template <typename T>
std::span<const HopperGemmWay> HopperGatedWays();

}  // namespace stagecoach::kernels::cuda
