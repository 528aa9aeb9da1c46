// Ops for CPUs: Highway kernels with run-time dispatch on a pool of `n_threads` threads.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace stagecoach::kernels {

struct CpuOptions {
  int32_t n_threads = 0;  // 0: one a core of this process's affinity mask
};

// Rows are bit-identical whatever the number of rows, threads and chunks. The instruction set is
// the best that the machine has; STAGECOACH_CPU_TARGET (cpu_target.h) asks for a lesser one.
std::unique_ptr<Ops> MakeCpuOps(const CpuOptions& options);

}  // namespace stagecoach::kernels
