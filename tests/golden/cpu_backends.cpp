#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/kernel_test_util.h"
#include "kernels/reference/reference_ops.h"
#include "tests/golden/golden_backends.h"

namespace stagecoach {
namespace {

constexpr float kTolerance = 1e-3f;

}  // namespace

std::vector<Backend> Backends() {
  std::vector<Backend> backends;
  backends.push_back(
      {.name = "reference", .ops = kernels::MakeReferenceOps(), .tolerance = kTolerance});
  backends.push_back(
      {.name = "cpu", .ops = kernels::MakeCpuOps({.n_threads = 2}), .tolerance = kTolerance});
  return backends;
}

bool BackendsCanRun(const GoldenModel&) { return true; }

// The reference is not tested for this: it computes the rows one after the other in any case. The
// last instruction set is the best and runs every model. The others are slow, so they run only
// some.
std::vector<Backend> SameBitsBackends() {
  std::vector<Backend> backends;
  const std::vector<std::string> targets = kernels::RunnableTargets();
  for (const std::string& target : targets) {
    backends.push_back({.name = "cpu, " + target,
                        .ops = kernels::MakeCpuOpsFor(target, 2),
                        .tolerance = kTolerance,
                        .model_stride = target == targets.back() ? size_t{1} : size_t{5}});
  }
  return backends;
}

}  // namespace stagecoach
