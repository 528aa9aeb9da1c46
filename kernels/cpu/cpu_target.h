// Which instruction set the kernels use.
#pragma once

#include <string>

#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/sample_vector.h"

namespace stagecoach::kernels {

struct CpuKernels {
  std::string target;  // "AVX2"
  CpuKernel<GemmArgs> gemm;
  CpuKernel<NormArgs> norm;
  CpuKernel<RopeAppendArgs> rope_append;
  CpuKernel<AttentionArgs> attention;
  CpuKernel<ActivationArgs> activation;
  CpuKernel<SoftCapArgs> soft_cap;
  SampleVector sample_vector;
};

// The best set that this machine runs, or the best one up to the one that the environment variable
// STAGECOACH_CPU_TARGET names: baseline, sse4, avx2 or avx512. An unknown name counts as unset.
CpuKernels ChooseCpuKernels();

}  // namespace stagecoach::kernels
