#include "kernels/cuda/device/disturbance.h"

#include <atomic>
#include <csignal>

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

struct FaultParams {
  bool never_ends;
};

__global__ void FaultKernel([[maybe_unused]] const FaultParams p) {
  WaitForPrevious();
#if defined(__CUDA_ARCH__)
  while (p.never_ends) __nanosleep(1000);
  asm volatile("trap;");
#endif
}

// The signal whose fault comes next; 0: none. Only disturbed processes handle the signals.
std::atomic<int> fault_signal{0};

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

Disturbance::Disturbance(uint64_t seed) : state_(seed) {
  if (!is_on()) return;
  for (const int signal : {SIGRTMIN + 1, SIGRTMIN + 2}) {
    std::signal(signal, [](int number) { fault_signal = number; });
  }
}

cudaError_t Disturbance::Delay(const Stream& stream) {
  if (!is_on()) return cudaSuccess;
  if (const int signal = fault_signal.exchange(0); signal != 0) {
    const LaunchShape shape{.grid = dim3(1), .block = dim3(1)};
    return Launch<&FaultKernel>(stream, shape, FaultParams{signal == SIGRTMIN + 2});
  }
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
                                        static_cast<int64_t>(KvBlockBytes(
                                            args.kv.dtype, args.n_kv_heads, args.head_dim, 1))});
}

}  // namespace stagecoach::kernels::cuda
