// Selection of the instruction set.
#pragma once

#include <string>

#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/sample_vector.h"

namespace stagecoach::kernels {

struct CpuKernels {
  std::string target;  // example: "AVX2"
  CpuKernel<GemmArgs> gemm;
  CpuKernel<NormArgs> norm;
  CpuKernel<RopeAppendArgs> rope_append;
  CpuKernel<HeadGemmArgs> head_gemm;
  CpuKernel<LatentAppendArgs> latent_append;
  CpuKernel<AttentionArgs> attention;
  CpuKernel<ActivationArgs> activation;
  CpuKernel<SoftCapArgs> soft_cap;
  CpuKernel<RecurrenceArgs> recurrence;
  CpuKernel<SigmoidGateArgs> sigmoid_gate;
  SampleVector sample_vector;
};

// Selects the best instruction set of this machine, up to the one in the environment variable
// STAGECOACH_CPU_TARGET: baseline, sse4, avx2, avx512, avx512_bf16 with the extensions BF16 and
// VNNI, or amx. An unknown name has no effect.
CpuKernels ChooseCpuKernels();

}  // namespace stagecoach::kernels
