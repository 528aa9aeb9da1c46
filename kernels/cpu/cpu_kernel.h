// What the CPU kernels share: one function an op and instruction set.
#pragma once

#include "absl/status/status.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

struct CpuContext {
  ThreadPool* pool;
  Scratch* scratch;  // the running kernel's own
  AttentionPlan* attention_plan;
};

// RESOURCE_EXHAUSTED when the scratch cannot grow.
template <typename Args>
using CpuKernel = absl::Status (*)(const Args& args, CpuContext& context);

struct SoftCapArgs {
  float* x;  // [n]
  int64_t n;
  float cap;
};

// The kernel for the instruction set that Highway has chosen at the time of the call; see
// cpu_target.h.
CpuKernel<GemmArgs> ChooseGemm();
CpuKernel<NormArgs> ChooseNorm();
CpuKernel<RopeAppendArgs> ChooseRopeAppend();
CpuKernel<AttentionArgs> ChooseAttention();
CpuKernel<ActivationArgs> ChooseActivation();
CpuKernel<SoftCapArgs> ChooseSoftCap();

}  // namespace stagecoach::kernels
