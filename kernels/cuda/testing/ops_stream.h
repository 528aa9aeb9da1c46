// The stream of an Ops, for tests that call kernels directly.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "kernels/cuda/device/compiled_for.h"
#include "kernels/cuda/device/cuda_api.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

// With few SMs a CTA processes several tiles, one after another.
inline cuda::Stream StreamOf(const Ops& ops, int32_t most_multiprocessors) {
  cudaDeviceProp properties{};
  REQUIRE(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  const auto handle = static_cast<cudaStream_t>(ops.native_queue().stream);
  cuda::CompiledFor compiled_for;
  REQUIRE(cuda::FindCompiledFor(handle, &compiled_for) == cudaSuccess);
  return {.handle = handle,
          .n_multiprocessors = std::min(most_multiprocessors, properties.multiProcessorCount),
          .overlaps = compiled_for.has_dependent_launch(),
          .is_hopper = compiled_for.has_hopper,
          .n_all_multiprocessors = properties.multiProcessorCount};
}

}  // namespace stagecoach::kernels
