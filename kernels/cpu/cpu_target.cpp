#include "kernels/cpu/cpu_target.h"

#include <hwy/highway.h>

#include <cstdlib>
#include <string_view>

#include "common/mutex.h"

namespace stagecoach::kernels {
namespace {

std::string_view WantedTarget() {
  const char* const name = std::getenv("STAGECOACH_CPU_TARGET");
  return name == nullptr ? "" : name;
}

// In Highway's target bits, a lower bit means a better instruction set.
int64_t AllowedTargets(std::string_view wanted) {
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

// Extensions of AVX-512 that Highway's targets do not have.
bool HasDots(int64_t targets, std::string_view wanted) {
#if HWY_ARCH_X86
  return wanted != "avx512" && (targets & -targets) == HWY_AVX3 &&
         __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

std::string TargetLabel(int64_t targets, bool has_dots) {
  const int64_t best = targets & -targets;
#if HWY_ARCH_X86
  if (has_dots) return "AVX-512 BF16 VNNI";
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
  const std::string_view wanted = WantedTarget();
  const int64_t targets = AllowedTargets(wanted) & HWY_TARGETS;
  const bool has_dots = HasDots(targets, wanted);
  hwy::GetChosenTarget().Update(targets);
  CpuKernels kernels{.target = TargetLabel(targets, has_dots),
                     .gemm = ChooseGemm(has_dots),
                     .norm = ChooseNorm(),
                     .rope_append = ChooseRopeAppend(),
                     .head_gemm = ChooseHeadGemm(),
                     .latent_append = ChooseLatentAppend(),
                     .attention = ChooseAttention(),
                     .activation = ChooseActivation(),
                     .soft_cap = ChooseSoftCap(),
                     .recurrence = ChooseRecurrence(),
                     .sigmoid_gate = ChooseSigmoidGate(),
                     .sample_vector = ChooseSampleVector()};
  hwy::GetChosenTarget().DeInit();
  return kernels;
}

}  // namespace stagecoach::kernels
