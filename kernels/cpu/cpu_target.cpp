#include "kernels/cpu/cpu_target.h"

#include <hwy/highway.h>
#if HWY_ARCH_X86
#include <cpuid.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

#if HWY_ARCH_X86

// Whether the CPU has AMX for bfloat16 and int8, and Linux lets this process use it: tiles make the
// state of a thread larger, so a process must ask (Documentation/arch/x86/xstate.rst).
bool MayUseAmx() {
#ifdef __linux__
  constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24, kInt8 = 1u << 25;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kBf16) == 0 || (edx & kTiles) == 0 || (edx & kInt8) == 0) return false;
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

#endif

CpuExtensions ExtensionsOf(int64_t targets, std::string_view wanted) {
#if HWY_ARCH_X86
  if (wanted == "avx512" || (targets & -targets) != HWY_AVX3) return CpuExtensions::kNone;
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni")) {
    return CpuExtensions::kNone;
  }
  if (wanted != "avx512_bf16" && MayUseAmx()) return CpuExtensions::kAmx;
  return CpuExtensions::kDots;
#else
  return CpuExtensions::kNone;
#endif
}

std::string TargetLabel(int64_t targets, CpuExtensions extensions) {
  const int64_t best = targets & -targets;
#if HWY_ARCH_X86
  if (extensions == CpuExtensions::kAmx) return "AVX-512 BF16 VNNI AMX";
  if (extensions == CpuExtensions::kDots) return "AVX-512 BF16 VNNI";
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
  const CpuExtensions extensions = ExtensionsOf(targets, wanted);
  hwy::GetChosenTarget().Update(targets);
  CpuKernels kernels{.target = TargetLabel(targets, extensions),
                     .gemm = ChooseGemm(extensions),
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
