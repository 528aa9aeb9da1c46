// Which parts of the rows of q, k and v are with which lane of a warp, in registers, as the tensor
// cores take them. With g = lane / 4 and c = lane % 4.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {

// Where a lane's part of a row of kDim 16-bit elements is. As a factor of a score: 16 bytes of each
// 32 elements, and 8 bytes of the 16 that may remain; the order of the head's elements is the same
// for q and k, and nobody's business else.
__device__ __forceinline__ constexpr int FactorByte(int chunk, int c) {
  return (32 * chunk + 8 * c) * 2;
}
template <int kDim>
__device__ __forceinline__ constexpr int LastFactorByte(int c) {
  return (kDim / 32 * 32 + 4 * c) * 2;
}
// Of a row of v: 16 bytes of each 64 elements, then 8 of 32 or 4 of 16 that may remain. Register t
// holds the elements ValueElement(t) and the next.
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

// Of 16 keys a lane has the rows g and g + 8, of their values the rows 2c, 2c + 1, 2c + 8, 2c + 9.
__device__ __forceinline__ int KeyRow(int h) {
  return static_cast<int>(threadIdx.x) % kWarpThreads / 4 + 8 * h;
}
__device__ __forceinline__ int ValueRow(int i) {
  return static_cast<int>(threadIdx.x) % 4 * 2 + i / 2 * 8 + i % 2;
}

// Where a byte of a row is kept in shared memory whose rows are a power of two long: the places of
// 16 bytes are exchanged such that no two lanes that read together meet in a bank.
__device__ __forceinline__ int SwappedKey(int row, int byte) { return byte ^ (row % 2 * 64); }
__device__ __forceinline__ int SwappedValue(int row, int byte) { return byte ^ (row / 2 % 4 * 32); }

// Such parts in registers. Row: gives 16, 8 or 4 bytes at an offset.
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

  // row(i): of ValueRow(i)
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
  // What the cache holds after a sequence's last token may be anything, NaN too.
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
