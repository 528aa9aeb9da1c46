#include "common/check.h"
#include "common/model/device_support.h"
#include "kernels/cuda/cuda_ops.h"
#include "tests/golden/golden_backends.h"

namespace stagecoach {
namespace {

Backend CudaBackend(bool batch_invariant, uint64_t disturbance_seed = 0) {
  auto ops = kernels::MakeCudaOps(
      {.batch_invariant = batch_invariant, .disturbance_seed = disturbance_seed});
  SC_CHECK(ops.ok());
  return {.name = std::string("cuda") + (batch_invariant ? ", batch-invariant" : "") +
                  (disturbance_seed != 0 ? ", disturbed" : ""),
          .ops = *std::move(ops),
          .tolerance = 2e-3f,
          .splits_alike = batch_invariant};
}

}  // namespace

std::vector<Backend> Backends() {
  std::vector<Backend> backends;
  for (const bool batch_invariant : {false, true}) {
    backends.push_back(CudaBackend(batch_invariant));
    backends.push_back(CudaBackend(batch_invariant, /*disturbance_seed=*/20261122));
  }
  return backends;
}

bool BackendsCanRun(const GoldenModel& model) {
  const auto spec = ReadModelSpec(model.model_dir);
  SC_CHECK(spec.ok());
  return CheckRunsOnGpus(*spec).ok();
}

std::vector<Backend> SameBitsBackends() {
  std::vector<Backend> backends;
  backends.push_back(CudaBackend(true));
  backends.push_back(CudaBackend(true, /*disturbance_seed=*/7));
  return backends;
}

}  // namespace stagecoach
