// Warpgroup MMAs (4 warps) in float32: D [64 x N] += A [64 x 16] B [N x 16]^T with both from shared
// memory (FP8: 32 columns instead of 16), or A from registers and B [16 x N] from shared memory.
// Layouts are those of the PTX ISA (wgmma).
//
// With g = lane / 4 and c = lane % 4, a lane of warp w holds for each group j of 8 columns of D
//   d[4j], d[4j + 1]: (16w + g, 8j + 2c ..)   d[4j + 2], d[4j + 3]: (16w + g + 8, 8j + 2c ..)
// as in mma.h. In shared memory a matrix is 64 columns (k) wide, with 128 bytes per row and
// 128-byte swizzling: piece p of row r, 16 bytes, is at position p ^ (r % 8). It is aligned to 1024
// bytes. TMA writes this layout.
#pragma once

#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED  // all multiples of 8 for N
#include <cute/arch/mma_sm90_gmma.hpp>
#include <utility>

#include "kernels/cuda/device/numbers.h"

namespace stagecoach::kernels::cuda {

inline constexpr int kWarpgroupThreads = 128;

// e4m3 codes. Two of them take the place of one 16-bit value in shared memory. Their sums lose bits
// in the tensor cores, so a kernel must add them to sums of its own now and then.
struct Fp8 {};

namespace wgmma_detail {
using cute::SM90::GMMA::Major;
template <typename T, int kN>
struct Instruction;
#define STAGECOACH_WGMMA(n)                                                          \
  template <>                                                                        \
  struct Instruction<BF16, n> {                                                      \
    using Op = cute::SM90::GMMA::MMA_64x##n##x16_F32BF16BF16_SS<Major::K, Major::K>; \
  };                                                                                 \
  template <>                                                                        \
  struct Instruction<F16, n> {                                                       \
    using Op = cute::SM90::GMMA::MMA_64x##n##x16_F32F16F16_SS<Major::K, Major::K>;   \
  };
STAGECOACH_WGMMA(32)
STAGECOACH_WGMMA(48)
STAGECOACH_WGMMA(64)
STAGECOACH_WGMMA(128)
STAGECOACH_WGMMA(192)
STAGECOACH_WGMMA(224)
STAGECOACH_WGMMA(256)
#undef STAGECOACH_WGMMA

#define STAGECOACH_WGMMA(n)                                           \
  template <>                                                         \
  struct Instruction<Fp8, n> {                                        \
    using Op = cute::SM90::GMMA::MMA_64x##n##x32_F32E4M3E4M3_SS_TN<>; \
  };
STAGECOACH_WGMMA(32)
STAGECOACH_WGMMA(48)
STAGECOACH_WGMMA(64)
STAGECOACH_WGMMA(128)
STAGECOACH_WGMMA(192)
STAGECOACH_WGMMA(224)
#undef STAGECOACH_WGMMA

template <typename T, int kN, bool kRows>
struct FromRegisters;
#define STAGECOACH_WGMMA(n, rows, major)                                                 \
  template <>                                                                            \
  struct FromRegisters<BF16, n, rows> {                                                  \
    using Op = cute::SM90::GMMA::MMA_64x##n##x16_F32BF16BF16_RS<Major::K, Major::major>; \
  };                                                                                     \
  template <>                                                                            \
  struct FromRegisters<F16, n, rows> {                                                   \
    using Op = cute::SM90::GMMA::MMA_64x##n##x16_F32F16F16_RS<Major::K, Major::major>;   \
  };
STAGECOACH_WGMMA(16, false, K)
STAGECOACH_WGMMA(32, false, K)
STAGECOACH_WGMMA(64, false, K)
STAGECOACH_WGMMA(128, false, K)
STAGECOACH_WGMMA(64, true, MN)
STAGECOACH_WGMMA(128, true, MN)
#undef STAGECOACH_WGMMA
}  // namespace wgmma_detail

// The instruction's matrix descriptor: address, 1024 bytes between groups of 8 rows, 128-byte
// swizzling. Add kWgmmaStep to advance by 16 columns.
__device__ __forceinline__ uint64_t WgmmaMatrix(uint32_t shared_address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | (uint64_t{1} << 16) | ((shared_address & 0x3ffff) >> 4);
}
inline constexpr uint64_t kWgmmaStep = 32 >> 4;

// Starts d += a b^T, or d = a b^T if not `adds`. d is valid after WaitForWgmma. Call between
// BeginWgmma and CommitWgmma.
template <typename T, int kN>
__device__ __forceinline__ void Wgmma(float (&d)[kN / 2], uint64_t a, uint64_t b, bool adds) {
  using Scale = cute::SM90::GMMA::ScaleOut;
  [&]<size_t... kI>(std::index_sequence<kI...>) __attribute__((always_inline)) {
    wgmma_detail::Instruction<T, kN>::Op::fma(a, b, d[kI]..., adds ? Scale::One : Scale::Zero);
  }(std::make_index_sequence<kN / 2>{});
}

// Like Wgmma, with a [64 x 16] in registers; a warp's 16 rows are laid out like A in mma.h.
template <typename T, int kSums>
__device__ __forceinline__ void WgmmaFromRegisters(float (&d)[kSums], const uint32_t (&a)[4],
                                                   uint64_t b, bool adds) {
  using Scale = cute::SM90::GMMA::ScaleOut;
  [&]<size_t... kI>(std::index_sequence<kI...>) __attribute__((always_inline)) {
    wgmma_detail::FromRegisters<T, 2 * kSums, false>::Op::fma(a[0], a[1], a[2], a[3], b, d[kI]...,
                                                              adds ? Scale::One : Scale::Zero);
  }(std::make_index_sequence<kSums>{});
}

// Descriptor of b [16 x kN]: one matrix with rows of 64 columns, as above, or two, the second
// `half_bytes` after the first. Add kWgmmaRowsStep to advance by 16 rows.
__device__ __forceinline__ uint64_t WgmmaRows(uint32_t shared_address, uint32_t half_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | (uint64_t{half_bytes >> 4} << 16) |
         ((shared_address & 0x3ffff) >> 4);
}
inline constexpr uint64_t kWgmmaRowsStep = 16 * 128 >> 4;

// Starts d += a b, under the same rules.
template <typename T, int kN>
__device__ __forceinline__ void WgmmaRowsFromRegisters(float (&d)[kN / 2], const uint32_t (&a)[4],
                                                       uint64_t b) {
  [&]<size_t... kI>(std::index_sequence<kI...>) __attribute__((always_inline)) {
    wgmma_detail::FromRegisters<T, kN, true>::Op::fma(a[0], a[1], a[2], a[3], b, d[kI]...);
  }(std::make_index_sequence<kN / 2>{});
}

// The compiler must not move accumulators across this.
template <int kCount>
__device__ __forceinline__ void FenceAccumulators(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

__device__ __forceinline__ void BeginWgmma() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void CommitWgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending committed groups are in flight.
template <int kPending>
__device__ __forceinline__ void WaitForWgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

}  // namespace stagecoach::kernels::cuda
