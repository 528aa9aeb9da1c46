#include <catch2/catch_test_macros.hpp>

#include "absl/cleanup/cleanup.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/emulation/runtime.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("a permanent error means a lost device, a temporary error does not") {
  const auto ops = MakeCudaOps({});
  REQUIRE(ops.ok());
  CHECK((*ops)->CheckDevice().ok());
  CHECK(absl::IsResourceExhausted((*ops)->Allocate(size_t{1} << 40).status()));
  CHECK((*ops)->CheckDevice().ok());

  simt::LoseDevice(true);
  const absl::Cleanup found = [] { simt::LoseDevice(false); };
  CHECK_FALSE((*ops)->Allocate(16).ok());
  CHECK_FALSE((*ops)->Synchronize().ok());
  CHECK(absl::IsInternal((*ops)->CheckDevice()));
  CHECK_FALSE((*ops)->CheckDevice().ok());
}

}  // namespace
}  // namespace stagecoach::kernels
