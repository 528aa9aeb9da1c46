#include "kernels/cuda/device/message_copy.h"

#include "kernels/cuda/device/launch.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kMostBlocks = 1024;  // more CTAs do not copy faster

struct MessageParams {
  const uint32_t* from;
  uint32_t* to;
  int64_t n_words;
  MessageSeal seal;
  BrokenStep broken;
};

__device__ __forceinline__ void CopyWords(const MessageParams& p) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < p.n_words; i += stride) {
    p.to[i] = p.from[i];
  }
}

__device__ __forceinline__ uint32_t SealWord(const MessageSeal& seal, int word) {
  const uint64_t half = word < 2 ? seal.epoch : seal.step;
  return static_cast<uint32_t>(word % 2 == 0 ? half : half >> 32);
}

__device__ __forceinline__ bool IsFirstThread() { return blockIdx.x == 0 && threadIdx.x == 0; }

__global__ void SealKernel(const MessageParams p) {
  LetNextStart();
  WaitForPrevious();
  CopyWords(p);
  if (!IsFirstThread()) return;
  const bool is_broken = *p.broken.device != 0;
  for (int word = 0; word < 4; ++word) {
    p.to[p.n_words + word] = is_broken ? 0 : SealWord(p.seal, word);
  }
}

__global__ void OpenKernel(const MessageParams p) {
  LetNextStart();
  WaitForPrevious();
  CopyWords(p);
  if (!IsFirstThread()) return;
  bool is_whole = true;
  for (int word = 0; word < 4; ++word) {
    is_whole = is_whole && p.from[p.n_words + word] == SealWord(p.seal, word);
  }
  if (is_whole || *p.broken.device != 0) return;
  *p.broken.device = p.seal.step;
  *p.broken.host = p.seal.step;
}

LaunchShape ShapeFor(int64_t n_words) {
  const int64_t blocks = CeilDiv(n_words > 0 ? n_words : 1, kThreads);
  return {.grid = dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)),
          .block = kThreads};
}

MessageParams Params(const void* from, void* to, size_t n_bytes, const MessageSeal& seal,
                     const BrokenStep& broken) {
  return {.from = static_cast<const uint32_t*>(from),
          .to = static_cast<uint32_t*>(to),
          .n_words = static_cast<int64_t>(n_bytes / sizeof(uint32_t)),
          .seal = seal,
          .broken = broken};
}

}  // namespace

cudaError_t SealMessage(cudaStream_t stream, const void* payload, void* message, size_t n_bytes,
                        const MessageSeal& seal, const BrokenStep& broken) {
  const MessageParams params = Params(payload, message, n_bytes, seal, broken);
  return Launch<&SealKernel>(Stream{.handle = stream}, ShapeFor(params.n_words), params);
}

cudaError_t OpenMessage(cudaStream_t stream, const void* message, void* payload, size_t n_bytes,
                        const MessageSeal& seal, const BrokenStep& broken) {
  const MessageParams params = Params(message, payload, n_bytes, seal, broken);
  return Launch<&OpenKernel>(Stream{.handle = stream}, ShapeFor(params.n_words), params);
}

}  // namespace stagecoach::kernels::cuda
