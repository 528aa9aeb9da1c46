// Tensor core MMA for 16-bit types: m16n8k16 with float32 accumulation, a warp collective. Layouts
// are those of the PTX ISA (mma.m16n8k16).
//
// With g = lane / 4 and c = lane % 4, a lane holds
//   A [16 x 16]  a0: (g, 2c..2c+1)  a1: (g + 8, 2c..)  a2: (g, 2c + 8..)  a3: (g + 8, 2c + 8..)
//   B [16 x 8]   b0: (2c..2c+1, g)  b1: (2c + 8.., g)
//   C [16 x 8]   c0, c1: (g, 2c..2c+1)  c2, c3: (g + 8, 2c..2c+1)
// Two values of a row (A) or of a column (B) share a register. A and B may permute the 16 inner
// indices as long as they agree. Kernels use this freedom to read 16 bytes at a time.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/device/numbers.h"

namespace stagecoach::kernels::cuda {

#ifdef STAGECOACH_EMULATED_CUDA

template <typename T>
inline void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Fragments {
    uint32_t a[4], b[2];
  };
  const simt::Exchange& all = simt::Collect(Fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const auto value = [](uint32_t pair, unsigned i) {
    return ToFloat(T{static_cast<uint16_t>(i % 2 == 0 ? pair : pair >> 16)});
  };
  const unsigned lane = simt::Lane(), g = lane / 4, c = lane % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = g + i / 2 * 8, col = 2 * c + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned pair_of_k = k % 8 / 2, second = k / 8;
      const auto of_a = all.Of<Fragments>(row % 8 * 4 + pair_of_k);
      const auto of_b = all.Of<Fragments>(col * 4 + pair_of_k);
      d[i] += value(of_a.a[second * 2 + row / 8], k) * value(of_b.b[second], k);
    }
  }
}

// The same with d = 0 before.
template <typename T>
inline void FirstMma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  for (float& value : d) value = 0;
  Mma<T>(d, a, b0, b1);
}

// Transposes an 8 x 8 matrix of 16-bit values. A lane holds (g, 2c..2c+1) before and after.
inline uint32_t Transpose8x8(uint32_t pair) {
  const simt::Exchange& all = simt::Collect(pair);
  const unsigned lane = simt::Lane(), g = lane / 4, c = lane % 4;
  const auto element = [&](unsigned row, unsigned col) {
    const uint32_t held = all.Of<uint32_t>(row * 4 + col / 2);
    return col % 2 == 0 ? held & 0xffffu : held >> 16;
  };
  return element(2 * c, g) | (element(2 * c + 1, g) << 16);
}

// Four 8 x 8 matrices of 16-bit values from shared memory (ldmatrix). `row` of lane i: row i % 8 of
// matrix i / 8, 16 bytes, aligned. A lane gets (g, 2c..2c+1) of each matrix.
inline void LoadMatrices(uint32_t (&to)[4], const unsigned char* row) {
  const simt::Exchange& all = simt::Collect(row);
  const unsigned lane = simt::Lane(), g = lane / 4, c = lane % 4;
  for (unsigned m = 0; m < 4; ++m) {
    std::memcpy(&to[m], all.Of<const unsigned char*>(8 * m + g) + 4 * c, sizeof(uint32_t));
  }
}
// The same, but a lane gets (2c..2c+1, g) of each matrix.
inline void LoadTransposed(uint32_t (&to)[4], const unsigned char* row) {
  const simt::Exchange& all = simt::Collect(row);
  const unsigned lane = simt::Lane(), g = lane / 4, c = lane % 4;
  for (unsigned m = 0; m < 4; ++m) {
    uint16_t pair[2];
    for (unsigned e = 0; e < 2; ++e) {
      std::memcpy(&pair[e], all.Of<const unsigned char*>(8 * m + 2 * c + e) + 2 * g,
                  sizeof(uint16_t));
    }
    std::memcpy(&to[m], pair, sizeof(pair));
  }
}

#else

template <typename T>
__device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1);
template <>
__device__ __forceinline__ void Mma<BF16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void Mma<F16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <typename T>
__device__ __forceinline__ void FirstMma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1);
template <>
__device__ __forceinline__ void FirstMma<BF16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                               uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
template <>
__device__ __forceinline__ void FirstMma<F16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

__device__ __forceinline__ uint32_t Transpose8x8(uint32_t pair) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

__device__ __forceinline__ void LoadMatrices(uint32_t (&to)[4], const unsigned char* row) {
  const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void LoadTransposed(uint32_t (&to)[4], const unsigned char* row) {
  const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

#endif

}  // namespace stagecoach::kernels::cuda
