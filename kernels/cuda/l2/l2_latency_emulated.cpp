// Latencies of a GPU with two L2 partitions. So all code that reads or writes the KV cache is
// tested with swapped rows.
#include <bit>

#include "kernels/cuda/l2/l2_latency.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr uint32_t kMask = 0xab;

uint16_t Latency(uint32_t multiprocessor, uint32_t page, uint32_t chunk) {
  const uint32_t side = (std::popcount(chunk & kMask) + (0x9e3779b9u >> page % 32)) & 1;
  return static_cast<uint16_t>((side == multiprocessor ? 270 : 480) + (chunk * 7 + page) % 40);
}

}  // namespace

bool HasL2Latencies(const Stream&, const void*) { return true; }

cudaError_t ChunkLatencies(const Stream& stream, void*, uint16_t* latencies) {
  simt::Enqueue(stream.handle, [latencies, n = stream.n_all_multiprocessors] {
    for (int i = 0; i < n * kPageChunks; ++i) {
      latencies[i] = Latency(static_cast<uint32_t>(i / kPageChunks), 0,
                             static_cast<uint32_t>(i % kPageChunks));
    }
  });
  return cudaSuccess;
}

cudaError_t PageLatencies(const Stream& stream, const PageLatencyArgs& args) {
  simt::Enqueue(stream.handle, [args] {
    for (int32_t i = 0; i < 2 * args.n_pages; ++i) {
      args.latencies[i] = Latency(static_cast<uint32_t>(i / args.n_pages),
                                  static_cast<uint32_t>(i % args.n_pages), 0);
    }
  });
  return cudaSuccess;
}

}  // namespace stagecoach::kernels::cuda
