// The stream of an Ops, for tests that call kernels directly.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "kernels/cuda/device/cuda_api.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

// With few SMs a CTA processes several tiles, one after another.
inline cuda::Stream StreamOf(const Ops& ops, int32_t most_multiprocessors) {
  cudaDeviceProp properties{};
  REQUIRE(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  return {.handle = static_cast<cudaStream_t>(ops.native_queue().stream),
          .n_multiprocessors = std::min(most_multiprocessors, properties.multiProcessorCount),
          .overlaps = properties.major >= 9,
          .is_hopper = properties.major == 9 && properties.minor == 0,
          .n_all_multiprocessors = properties.multiProcessorCount};
}

}  // namespace stagecoach::kernels
