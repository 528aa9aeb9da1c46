// Shared by the CPU kernels: one function per op and instruction set.
#pragma once

#include "absl/status/status.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

struct CpuContext {
  ThreadPool* pool;
  Scratch* scratch;  // only for the running kernel
  AttentionPlan* attention_plan;
};

// Returns RESOURCE_EXHAUSTED if the scratch cannot grow.
template <typename Args>
using CpuKernel = absl::Status (*)(const Args& args, CpuContext& context);

struct SoftCapArgs {
  float* x;  // [n]
  int64_t n;
  float cap;
};

// What the machine has beside AVX-512, and Highway's targets do not have.
enum class CpuExtensions : uint8_t {
  kNone,
  kDots,  // BF16 and VNNI
  kAmx,   // these, and AMX for bfloat16 and int8
};

// Return the kernel for Highway's chosen target at the time of the call; see cpu_target.h.
// extensions: kNone unless the target is AVX3.
CpuKernel<GemmArgs> ChooseGemm(CpuExtensions extensions);
CpuKernel<NormArgs> ChooseNorm();
CpuKernel<RopeAppendArgs> ChooseRopeAppend();
CpuKernel<HeadGemmArgs> ChooseHeadGemm();
CpuKernel<LatentAppendArgs> ChooseLatentAppend();
CpuKernel<AttentionArgs> ChooseAttention();
CpuKernel<ActivationArgs> ChooseActivation();
CpuKernel<SoftCapArgs> ChooseSoftCap();
CpuKernel<RecurrenceArgs> ChooseRecurrence();
CpuKernel<SigmoidGateArgs> ChooseSigmoidGate();

}  // namespace stagecoach::kernels
