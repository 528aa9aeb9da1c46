#include "kernels/cuda/device/compiled_for.h"

#include <catch2/catch_test_macros.hpp>

#include "kernels/cuda/testing/device_values.h"

namespace stagecoach::kernels::cuda {
namespace {

TEST_CASE("What kernels were compiled for is not later than the GPU") {
  const auto ops = NewCudaOps();
  cudaDeviceProp properties{};
  REQUIRE(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  CompiledFor found;
  REQUIRE(FindCompiledFor(static_cast<cudaStream_t>(ops->native_queue().stream), &found) ==
          cudaSuccess);
  CHECK(found.architecture >= 800);
  CHECK(found.architecture <= 100 * properties.major + 10 * properties.minor);
  if (found.has_hopper) CHECK(found.architecture == 900);
}

}  // namespace
}  // namespace stagecoach::kernels::cuda
