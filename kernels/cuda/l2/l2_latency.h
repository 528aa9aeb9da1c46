// Latency of atomic operations. An atomic runs in the L2 partition that owns the memory, even if
// the near partition has a copy of the line. These atomics add 0, so the memory does not change.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"

namespace stagecoach::kernels::cuda {

// Whether a measurement makes sense: a Hopper GPU, and memory that starts at a multiple of
// kPageBytes.
bool HasL2Latencies(const Stream& stream, const void* memory);

// Measures from every SM to every chunk of a page. latencies: [kMaxSidedMultiprocessors,
// kPageChunks], initially zero, in cycles for a fixed number of operations.
cudaError_t ChunkLatencies(const Stream& stream, void* page, uint16_t* latencies);

struct PageLatencyArgs {
  unsigned char* memory;
  int32_t n_pages;
  L2Sides sides;
  int32_t n_multiprocessors[2];  // SMs per partition
  int32_t* tickets;              // [2], initially zero
  uint16_t* latencies;           // [2, n_pages], initially zero
};
// Measures the first chunk of every page once per partition, each time from one SM of that
// partition.
cudaError_t PageLatencies(const Stream& stream, const PageLatencyArgs& args);

}  // namespace stagecoach::kernels::cuda
