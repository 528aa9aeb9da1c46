#include "common/check.h"
#include "kernels/cuda/cuda_ops.h"
#include "tests/golden/golden_backends.h"

namespace stagecoach {
namespace {

Backend CudaBackend(bool batch_invariant) {
  auto ops = kernels::MakeCudaOps({.batch_invariant = batch_invariant});
  SC_CHECK(ops.ok());
  return {.name = batch_invariant ? "cuda, batch-invariant" : "cuda",
          .ops = *std::move(ops),
          .tolerance = 2e-3f,
          .splits_alike = batch_invariant};
}

}  // namespace

std::vector<Backend> Backends() {
  std::vector<Backend> backends;
  for (const bool batch_invariant : {false, true}) {
    backends.push_back(CudaBackend(batch_invariant));
  }
  return backends;
}

std::vector<Backend> SameBitsBackends() {
  std::vector<Backend> backends;
  backends.push_back(CudaBackend(true));
  return backends;
}

}  // namespace stagecoach
