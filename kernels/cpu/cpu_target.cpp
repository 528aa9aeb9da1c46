#include "kernels/cpu/cpu_target.h"

#include <hwy/highway.h>

#include <cstdlib>
#include <string_view>

#include "common/mutex.h"

namespace stagecoach::kernels {
namespace {

// In Highway's target bits, a lower bit means a better instruction set.
int64_t AllowedTargets() {
  const char* const name = std::getenv("STAGECOACH_CPU_TARGET");
  const std::string_view wanted = name == nullptr ? "" : name;
  const int64_t supported = hwy::SupportedTargets();
  const auto up_to = [supported](int64_t best) { return supported & ~(best - 1); };
#if HWY_ARCH_X86
  if (wanted == "avx512") return up_to(HWY_AVX3);
  if (wanted == "avx2") return up_to(HWY_AVX2);
  if (wanted == "sse4") return up_to(HWY_SSE4);
#endif
  if (wanted == "baseline") return up_to(HWY_STATIC_TARGET);
  return supported;
}

std::string TargetLabel(int64_t targets) {
  const int64_t best = targets & -targets;
#if HWY_ARCH_X86
  if (best == HWY_AVX3) return "AVX-512";
  if (best == HWY_STATIC_TARGET) return "baseline";
#endif
  return hwy::TargetName(best);
}

}  // namespace

CpuKernels ChooseCpuKernels() {
  // Highway's chosen target is a process-wide global. The kernels keep the function pointers of
  // this moment.
  static Mutex mutex;
  const MutexLock lock(mutex);
  const int64_t targets = AllowedTargets() & HWY_TARGETS;
  hwy::GetChosenTarget().Update(targets);
  CpuKernels kernels{.target = TargetLabel(targets),
                     .gemm = ChooseGemm(),
                     .norm = ChooseNorm(),
                     .rope_append = ChooseRopeAppend(),
                     .attention = ChooseAttention(),
                     .activation = ChooseActivation(),
                     .soft_cap = ChooseSoftCap(),
                     .sample_vector = ChooseSampleVector()};
  hwy::GetChosenTarget().DeInit();
  return kernels;
}

}  // namespace stagecoach::kernels
