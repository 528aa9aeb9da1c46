// Mapping of rows of q, k and v to the lanes of a warp, in registers, as the MMA instructions need
// it. g = lane / 4 and c = lane % 4.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {

// Byte offset of a lane's part of a row with kDim 16-bit elements. For q and k, the factors of the
// scores: 16 bytes of every 32 elements, and 8 bytes of the last 16 elements if kDim % 32 != 0. q
// and k use the same order of head elements, so the order does not change the dot product.
__device__ __forceinline__ constexpr int FactorByte(int chunk, int c) {
  return (32 * chunk + 8 * c) * 2;
}
template <int kDim>
__device__ __forceinline__ constexpr int LastFactorByte(int c) {
  return (kDim / 32 * 32 + 4 * c) * 2;
}
// For v: 16 bytes of every 64 elements, then 8 bytes of the last 32 or 4 bytes of the last 16.
// Register t holds elements ValueElement(t) and ValueElement(t) + 1.
__device__ __forceinline__ constexpr int ValueByte(int part, int g) {
  return (64 * part + 8 * g) * 2;
}
template <int kDim>
__device__ __forceinline__ constexpr int LastValueByte(int g) {
  return (kDim / 64 * 64 + kDim % 64 / 8 * g) * 2;
}
template <int kDim>
__device__ __forceinline__ constexpr int ValueElement(int t, int g) {
  constexpr int kWide = kDim / 64 * 4;  // registers of the parts of 64
  if (t < kWide) return t / 4 * 64 + 8 * g + t % 4 * 2;
  return kDim / 64 * 64 + kDim % 64 / 8 * g + (t - kWide) * 2;
}

// A block has 16 keys. A lane holds rows g and g + 8 of k, and rows 2c, 2c + 1, 2c + 8 and 2c + 9
// of v.
__device__ __forceinline__ int KeyRow(int h) {
  return static_cast<int>(threadIdx.x) % kWarpThreads / 4 + 8 * h;
}
__device__ __forceinline__ int ValueRow(int i) {
  return static_cast<int>(threadIdx.x) % 4 * 2 + i / 2 * 8 + i % 2;
}

// XOR swizzle: offset of a row's byte in shared memory, if the row size is a power of two. It
// permutes 16-byte pieces so that lanes that read together do not hit the same bank.
__device__ __forceinline__ int SwappedKey(int row, int byte) { return byte ^ (row % 2 * 64); }
__device__ __forceinline__ int SwappedValue(int row, int byte) { return byte ^ (row / 2 % 4 * 32); }

// A lane's part of a row, in registers. Row provides loads of 16, 8 and 4 bytes at a byte offset.
template <int kDim>
struct FactorRow {
  uint32_t at[kDim / 8];

  template <typename Row>
  __device__ __forceinline__ void Load(const Row& row) {
    const int c = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int chunk = 0; chunk < kDim / 32; ++chunk) {
      const uint4 values = row.Load16(FactorByte(chunk, c));
      at[4 * chunk] = values.x;
      at[4 * chunk + 1] = values.y;
      at[4 * chunk + 2] = values.z;
      at[4 * chunk + 3] = values.w;
    }
    if constexpr (kDim % 32 != 0) {
      const uint2 values = row.Load8(LastFactorByte<kDim>(c));
      at[kDim / 8 - 2] = values.x;
      at[kDim / 8 - 1] = values.y;
    }
  }
};

template <int kDim>
struct KeyBlock {
  FactorRow<kDim> rows[2];

  __device__ __forceinline__ uint4 Wide(int h, int chunk) const {
    const uint32_t* const at = rows[h].at + 4 * chunk;
    return make_uint4(at[0], at[1], at[2], at[3]);
  }
  __device__ __forceinline__ uint2 Last(int h) const {
    return make_uint2(rows[h].at[kDim / 8 - 2], rows[h].at[kDim / 8 - 1]);
  }
};

template <int kDim>
struct ValueBlock {
  static_assert(kDim % 16 == 0 && kDim % 64 != 48);
  uint32_t rows[4][kDim / 16];

  // row_of(i) returns row ValueRow(i).
  template <typename RowOf>
  __device__ __forceinline__ void Load(const RowOf& row_of) {
    const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto row = row_of(i);
#pragma unroll
      for (int part = 0; part < kDim / 64; ++part) {
        const uint4 values = row.Load16(ValueByte(part, g));
        rows[i][4 * part] = values.x;
        rows[i][4 * part + 1] = values.y;
        rows[i][4 * part + 2] = values.z;
        rows[i][4 * part + 3] = values.w;
      }
      if constexpr (kDim % 64 == 32) {
        const uint2 values = row.Load8(LastValueByte<kDim>(g));
        rows[i][kDim / 16 - 2] = values.x;
        rows[i][kDim / 16 - 1] = values.y;
      } else if constexpr (kDim % 64 == 16) {
        rows[i][kDim / 16 - 1] = row.Load4(LastValueByte<kDim>(g));
      }
    }
  }
  // The cache may hold any bits after a sequence's last token, including NaN.
  __device__ __forceinline__ void ClearFrom(int first) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (ValueRow(i) < first) continue;
#pragma unroll
      for (int t = 0; t < kDim / 16; ++t) rows[i][t] = 0;
    }
  }

  __device__ __forceinline__ uint4 Wide(int i, int part) const {
    const uint32_t* const at = rows[i] + 4 * part;
    return make_uint4(at[0], at[1], at[2], at[3]);
  }
  __device__ __forceinline__ uint2 Last8(int i) const {
    return make_uint2(rows[i][kDim / 16 - 2], rows[i][kDim / 16 - 1]);
  }
  __device__ __forceinline__ uint32_t Last4(int i) const { return rows[i][kDim / 16 - 1]; }
};

}  // namespace stagecoach::kernels::cuda
