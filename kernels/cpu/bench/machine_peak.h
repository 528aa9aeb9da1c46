// What the machine can do at most, measured in the same run as the kernels: the figures are ratios
// to these.
#pragma once

#include "kernels/cpu/thread_pool.h"

namespace stagecoach::kernels {

// Bytes a second of `pool` reading a buffer far larger than the caches, once: 512 MiB.
double ReadOnce(ThreadPool& pool);
// The best of several passes.
double ReadBandwidth(ThreadPool& pool);

// Floating-point operations a second of independent multiply-adds on all threads, 2 an element,
// with the instruction set that STAGECOACH_CPU_TARGET allows; the best of several passes.
double PeakFlops(ThreadPool& pool);

}  // namespace stagecoach::kernels
