// The machine's limits, measured in the same run as the kernels. Benchmarks report ratios to them.
#pragma once

#include <cstddef>

#include "kernels/cpu/thread_pool.h"

namespace stagecoach::kernels {

// Seconds on the clock that all measurements use: real time or, after UseCpuTime, CPU time of this
// process. CPU time is for a busy machine, with one thread.
double BenchSeconds();
void UseCpuTime();

// What a measurement of the bandwidth reads.
inline constexpr size_t kReadBytes = size_t{512} << 20;

// Bytes per second for one read of kReadBytes, a buffer much larger than the caches, by all threads
// of `pool`.
double ReadOnce(ThreadPool& pool);
// The best of several reads.
double ReadBandwidth(ThreadPool& pool);

// Peak FLOP per second: independent multiply-adds on all threads, 2 FLOP per element, with the
// instruction set that STAGECOACH_CPU_TARGET allows. The best of several passes.
double PeakFlops(ThreadPool& pool);

}  // namespace stagecoach::kernels
