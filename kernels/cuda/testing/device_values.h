// Shared by the GPU operation tests, in addition to kernels/testing/values.h.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <utility>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/reference/reference_ops.h"
#include "kernels/testing/values.h"

namespace stagecoach::kernels {

inline std::unique_ptr<Ops> NewCudaOps(bool batch_invariant = false) {
  auto ops = MakeCudaOps({.batch_invariant = batch_invariant});
  INFO(ops.status());
  REQUIRE(ops.ok());
  return *std::move(ops);
}

}  // namespace stagecoach::kernels
