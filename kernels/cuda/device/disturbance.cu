#include "kernels/cuda/device/disturbance.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr uint64_t kLongestNs = 200'000;
constexpr int kThreads = 256;

struct DelayParams {
  uint64_t ns;
  bool lets_next_start;
};

__global__ void DelayKernel(const DelayParams p) {
  if (p.lets_next_start) LetNextStart();
#if defined(__CUDA_ARCH__)
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < p.ns);
#endif
  WaitForPrevious();
}

struct FillParams {
  const int32_t* kv_slots;
  unsigned char *k, *v;
  int64_t block_bytes;
};

__global__ void FillKernel(const FillParams p) {
  LetNextStart();
  WaitForPrevious();
  const int32_t slot = p.kv_slots[blockIdx.x];
  if (slot < 0 || slot % kBlockTokens != 0) return;
  const int64_t first = slot / kBlockTokens * p.block_bytes;
  for (int64_t i = threadIdx.x; i < p.block_bytes; i += blockDim.x) {
    p.k[first + i] = 0xff;
    p.v[first + i] = 0xff;
  }
}

}  // namespace

cudaError_t Disturbance::Delay(const Stream& stream) {
  if (!is_on()) return cudaSuccess;
  // G. Marsaglia, "Xorshift RNGs", 2003
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  if (state_ % 4 != 0) return cudaSuccess;
  const LaunchShape shape{.grid = dim3(1), .block = dim3(1)};
  return Launch<&DelayKernel>(stream, shape,
                              DelayParams{(state_ >> 8) % kLongestNs, (state_ >> 40) % 2 != 0});
}

cudaError_t Disturbance::Fill(const Stream& stream, void* memory, size_t bytes) const {
  return cudaMemsetAsync(memory, is_on() ? 0xff : 0, bytes, stream.handle);
}

cudaError_t Disturbance::FillNewBlocks(const Stream& stream, const RopeAppendArgs& args) const {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.n_tokens)), .block = kThreads};
  return Launch<&FillKernel>(stream, shape,
                             FillParams{args.kv_slots, static_cast<unsigned char*>(args.kv.k),
                                        static_cast<unsigned char*>(args.kv.v),
                                        int64_t{args.n_kv_heads} * kBlockTokens * args.head_dim *
                                            static_cast<int64_t>(DTypeBytes(args.kv.dtype))});
}

}  // namespace stagecoach::kernels::cuda
