// Interface between hopper_gemm.cpp and one translation unit per dtype.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/fp8/fp8_gemm.h"
#include "kernels/cuda/hopper/hopper_gemm.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

struct BF16;  // defined in numbers.h for kernels
struct F16;

struct HopperGemmCall {
  const GemmArgs* gemm;   // null in FP8
  Act out;                // y, or the output of the activation
  Activation activation;  // if gated
  const Fp8GemmArgs* fp8 = nullptr;
};

struct HopperGemmWay {
  int n_rows, n_outputs;  // per tile
  int n_weights;          // rows of w per tile
  int n_blocks;           // CTAs per cluster
  int n_below;            // row tiles per cluster
  int n_parts;            // split-K parts
  cudaError_t (*run)(const Stream& stream, const HopperGemmCall& call);
};

// Indices of the ways worth trying, the one with the lowest estimated time first.
std::vector<int> LikeliestHopperWays(const Stream& stream, std::span<const HopperGemmWay> ways,
                                     int32_t n_rows, int32_t n_outputs, Additions additions);

// T: dtype of x and w.
template <typename T>
std::span<const HopperGemmWay> HopperWays(DType y);
template <typename T>
std::span<const HopperGemmWay> HopperGatedWays();

// The kernels in FP8. O: float or BF16, the type of y
template <typename O>
std::span<const HopperGemmWay> Fp8WaysTo();
template <>
std::span<const HopperGemmWay> Fp8WaysTo<float>();
template <>
std::span<const HopperGemmWay> Fp8WaysTo<BF16>();
std::span<const HopperGemmWay> GatedFp8Ways();  // to bfloat16

}  // namespace stagecoach::kernels::cuda
