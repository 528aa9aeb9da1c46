// How long atomic operations take, which are done where the memory's own half of L2 is, whatever
// the near one keeps a copy of. They add 0 and leave memory as it is.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"

namespace stagecoach::kernels::cuda {

// Whether it is worth while: Hopper, memory that begins with a page.
bool HasL2Latencies(const Stream& stream, const void* memory);

// From every multiprocessor to every chunk of a page. latencies: zeros,
// [kMaxSidedMultiprocessors, kPageChunks], in cycles.
cudaError_t ChunkLatencies(const Stream& stream, void* page, uint16_t* latencies);

struct PageLatencyArgs {
  unsigned char* memory;
  int32_t n_pages;
  L2Sides sides;
  int32_t n_multiprocessors[2];  // of each side
  int32_t* tickets;              // [2], zeros
  uint16_t* latencies;           // [2, n_pages], zeros
};
// From one multiprocessor of each side to the first chunk of every page.
cudaError_t PageLatencies(const Stream& stream, const PageLatencyArgs& args);

}  // namespace stagecoach::kernels::cuda
