#include "kernels/cuda/gemm/gemm_trial_kernels.h"

#include "kernels/cuda/device/dispatch.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

struct RandomParams {
  void* out;
  int64_t n;
  uint32_t seed;
};

template <typename T>
__global__ void RandomKernel(const RandomParams p) {
  LetNextStart();
  WaitForPrevious();
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < p.n; i += stride) {
    // Finalizer of MurmurHash3 (A. Appleby).
    uint32_t bits = static_cast<uint32_t>(i) + p.seed * 0x9e3779b9u;
    bits = (bits ^ (bits >> 16)) * 0x85ebca6bu;
    bits = (bits ^ (bits >> 13)) * 0xc2b2ae35u;
    bits ^= bits >> 16;
    static_cast<T*>(p.out)[i] = FromFloat<T>(static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f);
  }
}

struct DifferentParams {
  const uint16_t *a, *b;
  int64_t n;
  uint32_t* n_different;
};

__global__ void DifferentKernel(const DifferentParams p) {
  LetNextStart();
  WaitForPrevious();
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  uint32_t n = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < p.n; i += stride) {
    n += p.a[i] != p.b[i] ? 1u : 0u;
  }
  if (n > 0) atomicAdd(p.n_different, n);
}

struct ReadParams {
  WordsToRead words[2];
  int32_t zero;  // opaque to the compiler, so that it keeps the loads
  uint32_t* never;
};

__global__ void ReadKernel(const ReadParams p) {
  LetNextStart();
  WaitForPrevious();
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  uint32_t all = 0;
  for (const WordsToRead& words : p.words) {
    const auto* const at = static_cast<const uint32_t*>(words.at);
#pragma unroll 8
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words.n; i += stride) {
      all |= at[i];
    }
  }
  if (p.zero != 0) atomicAdd(p.never, all);
}

LaunchShape ShapeFor(const Stream& stream) {
  return {.grid = dim3(static_cast<unsigned>(stream.n_multiprocessors) * 4), .block = kThreads};
}

}  // namespace

cudaError_t FillRandom(const Stream& stream, Act out, int64_t n, uint32_t seed) {
  return WithType(out.dtype, [&](auto type) {
    return Launch<&RandomKernel<decltype(type)>>(stream, ShapeFor(stream),
                                                 RandomParams{out.data, n, seed});
  });
}

cudaError_t ReadWords(const Stream& stream, const WordsToRead& a, const WordsToRead& b) {
  return Launch<&ReadKernel>(stream, ShapeFor(stream),
                             ReadParams{.words = {a, b}, .zero = 0, .never = nullptr});
}

cudaError_t CountDifferent(const Stream& stream, const void* a, const void* b, int64_t n_words,
                           uint32_t* n_different) {
  return Launch<&DifferentKernel>(
      stream, ShapeFor(stream),
      DifferentParams{static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b), n_words,
                      n_different});
}

}  // namespace stagecoach::kernels::cuda
