// Ops for CPUs: Highway kernels with run-time dispatch, on a pool of threads.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace stagecoach::kernels {

struct CpuOptions {
  int32_t n_threads = 0;  // 0: one per core in this process's affinity mask
};

// Rows are bit-identical for any number of rows, any number of threads and any chunking. The
// kernels use the best instruction set of the machine; STAGECOACH_CPU_TARGET (cpu_target.h) selects
// a lesser one.
std::unique_ptr<Ops> MakeCpuOps(const CpuOptions& options);

}  // namespace stagecoach::kernels
