#include "kernels/cuda/l2/l2_latency.h"

#include "kernels/cuda/attention/kv_rows.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kTries = 6;   // attempts; the minimum counts, because other CTAs' traffic delays some
constexpr int kInTurn = 4;  // dependent operations per attempt
constexpr unsigned kUnlikely = 0x7ead5eed;
// So large that no SM runs two CTAs.
constexpr size_t kSharedBytes = size_t{120} << 10;

__device__ uint16_t Latency(unsigned char* at) {
  auto* const word = reinterpret_cast<unsigned*>(at);
  unsigned value = atomicAdd(word, 0u);
  long long least = UINT16_MAX;
  for (int i = 0; i < kTries; ++i) {
    const long long begin = clock64();
#pragma unroll
    for (int n = 0; n < kInTurn; ++n) {
      // The next address depends on this result, so the operations run one after another.
      value = atomicAdd(word + (value == kUnlikely ? 1 : 0), 0u);
    }
    const long long taken = clock64() - begin;
    least = taken < least ? taken : least;
  }
  return static_cast<uint16_t>(least);
}

struct ChunkParams {
  unsigned char* page;
  uint16_t* latencies;
};

__global__ void ChunkLatencyKernel(const ChunkParams p) {
  WaitForPrevious();
  if (threadIdx.x != 0) return;
  const int32_t m = Multiprocessor();
  if (m >= kMaxSidedMultiprocessors) return;
  for (int i = 0; i < kPageChunks; ++i) {
    const int chunk = (i + 31 * static_cast<int>(blockIdx.x)) % kPageChunks;
    p.latencies[m * kPageChunks + chunk] = Latency(p.page + chunk * kChunkBytes);
  }
}

__global__ void PageLatencyKernel(const PageLatencyArgs p) {
  WaitForPrevious();
  if (threadIdx.x != 0) return;
  const int32_t side = p.sides.SideOf(Multiprocessor()), n = p.n_multiprocessors[side];
  for (int32_t page = atomicAdd(p.tickets + side, 1); page < p.n_pages; page += n) {
    p.latencies[side * p.n_pages + page] = Latency(p.memory + page * kPageBytes);
  }
}

LaunchShape ShapeFor(const Stream& stream) {
  return {.grid = dim3(static_cast<unsigned>(stream.n_all_multiprocessors)),
          .block = 32,
          .shared_bytes = kSharedBytes};
}

}  // namespace

bool HasL2Latencies(const Stream& stream, const void* memory) {
  return stream.is_hopper && reinterpret_cast<uintptr_t>(memory) % kPageBytes == 0;
}

cudaError_t ChunkLatencies(const Stream& stream, void* page, uint16_t* latencies) {
  return Launch<&ChunkLatencyKernel>(stream, ShapeFor(stream),
                                     ChunkParams{static_cast<unsigned char*>(page), latencies});
}

cudaError_t PageLatencies(const Stream& stream, const PageLatencyArgs& args) {
  return Launch<&PageLatencyKernel>(stream, ShapeFor(stream), args);
}

}  // namespace stagecoach::kernels::cuda
