// Rows of an FP8 KV cache (common/kv_fp8.h) in registers.
//
// Codes become 16-bit numbers when they are used, so that loads in flight take half the registers.
// The numbers are exact: a row gives the same bits as its numbers in a cache of T.
//
// The order of codes in a row is that in which a warp reads them, 16 bytes per lane where a row is
// long enough (KvFp8Place). Words of four codes hold elements 0, 2, 1 and 3, as fp8_codes.h
// expects.
#pragma once

#include <cstdint>

#include "common/kv_fp8.h"
#include "kernels/cuda/attention/attention_rows.h"
#include "kernels/cuda/fp8/fp8_codes.h"

namespace stagecoach::kernels::cuda {

// Where the codes of elements 8 * i to 8 * i + 7 begin in a row. A lane's part of 32 elements of a
// key, or of 64 elements of a value, are 8 elements (FactorByte, ValueByte). Those of two such
// parts are neighbours, if the row has both.
__host__ __device__ constexpr int KvFp8Place8(int i, int head_dim, bool is_v) {
  const int lanes = is_v ? 8 : 4;  // that share a row
  const int part = i / lanes, lane = i % lanes, n_parts = head_dim / (8 * lanes);
  if (part >= n_parts) return 8 * i;
  const int pair = part / 2 * (16 * lanes);
  return part / 2 < n_parts / 2 ? pair + 16 * lane + part % 2 * 8 : pair + 8 * lane;
}
// Where the code of element i lies.
__host__ __device__ constexpr int KvFp8Place(int i, int head_dim, bool is_v) {
  const int in_word = (i & 1) << 1 | (i >> 1 & 1);
  return KvFp8Place8(i / 8, head_dim, is_v) + (i & 4) + in_word;
}

// A row's scale, as FP8 codes need it: times what corrects their exponents, in both halves. Scales
// of rows that nothing was written to may be any bits.
template <typename T>
__device__ __forceinline__ uint32_t Fp8Factor(uint32_t scale_bits) {
  if constexpr (kIsBF16<T>) return BothHalves((scale_bits + (120u << 7)) & 0xffffu);
  const int exponent = static_cast<int>(scale_bits >> 7 & 0xffu) - 127 + 8;  // of the factor
  const uint32_t half = exponent >= -14 ? static_cast<uint32_t>(exponent + 15) << 10 & 0x7c00u
                                        : 0x400u >> min(-14 - exponent, 11);
  return BothHalves(half);
}

// The numbers of one or two words.
template <typename T>
__device__ __forceinline__ uint2 Fp8Numbers(uint32_t word, uint32_t factor) {
  uint2 numbers;
  Fp8Pairs<T>(word, factor, numbers.x, numbers.y);
  return numbers;
}
template <typename T>
__device__ __forceinline__ uint4 Fp8Numbers(uint2 words, uint32_t factor) {
  const uint2 first = Fp8Numbers<T>(words.x, factor), second = Fp8Numbers<T>(words.y, factor);
  return make_uint4(first.x, first.y, second.x, second.y);
}

// The scales of a head of a block.
template <int kDim>
__device__ __forceinline__ const uint16_t* Fp8Scales(const unsigned char* head) {
  return reinterpret_cast<const uint16_t*>(head + KvFp8CodeBytes(kDim));
}

// As KeyBlock.
template <typename T, int kDim>
struct Fp8KeyBlock {
  uint32_t codes[2][kDim / 16];
  uint32_t scales[2];

  __device__ __forceinline__ void Load(const unsigned char* head) {
    const int c = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const unsigned char* const row = head + KeyRow(h) * kDim;
#pragma unroll
      for (int pair = 0; pair < kDim / 64; ++pair) {
        const uint4 words = LoadOnce(row + 64 * pair + 16 * c);
        codes[h][4 * pair] = words.x;
        codes[h][4 * pair + 1] = words.y;
        codes[h][4 * pair + 2] = words.z;
        codes[h][4 * pair + 3] = words.w;
      }
      if constexpr (kDim / 32 % 2 != 0) {
        constexpr int kFirst = kDim / 64 * 64;
        const uint2 words = *reinterpret_cast<const uint2*>(row + kFirst + 8 * c);
        codes[h][kFirst / 16] = words.x;
        codes[h][kFirst / 16 + 1] = words.y;
      }
      if constexpr (kDim % 32 != 0) {
        codes[h][kDim / 16 - 1] =
            *reinterpret_cast<const uint32_t*>(row + LastFactorByte<kDim>(c) / 2);
      }
      scales[h] = Fp8Scales<kDim>(head)[KeyRow(h)];
    }
  }

  __device__ __forceinline__ uint4 Wide(int h, int chunk) const {
    return Fp8Numbers<T>(make_uint2(codes[h][2 * chunk], codes[h][2 * chunk + 1]),
                         Fp8Factor<T>(scales[h]));
  }
  __device__ __forceinline__ uint2 Last(int h) const {
    return Fp8Numbers<T>(codes[h][kDim / 16 - 1], Fp8Factor<T>(scales[h]));
  }
};

// As ValueBlock.
template <typename T, int kDim>
struct Fp8ValueBlock {
  static_assert(kDim % 16 == 0 && kDim % 64 != 48);
  static constexpr int kWords = (kDim + 31) / 32;  // per row
  uint32_t codes[4][kWords];
  uint32_t scales[2];  // those of rows 0 and 1, then of rows 2 and 3

  __device__ __forceinline__ void Load(const unsigned char* head) {
    const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned char* const row = head + ValueRow(i) * kDim;
#pragma unroll
      for (int pair = 0; pair < kDim / 128; ++pair) {
        const uint4 words = LoadOnce(row + 128 * pair + 16 * g);
        codes[i][4 * pair] = words.x;
        codes[i][4 * pair + 1] = words.y;
        codes[i][4 * pair + 2] = words.z;
        codes[i][4 * pair + 3] = words.w;
      }
      if constexpr (kDim / 64 % 2 != 0) {
        constexpr int kFirst = kDim / 128 * 128;
        const uint2 words = *reinterpret_cast<const uint2*>(row + kFirst + 8 * g);
        codes[i][kFirst / 32] = words.x;
        codes[i][kFirst / 32 + 1] = words.y;
      }
      // Two lanes share the word of the last 16 elements.
      if constexpr (kDim % 64 != 0) {
        codes[i][kWords - 1] =
            *reinterpret_cast<const uint32_t*>(row + LastValueByte<kDim>(g) / 2 / 4 * 4);
      }
    }
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      scales[pair] = *reinterpret_cast<const uint32_t*>(Fp8Scales<kDim>(head) + ValueRow(2 * pair));
    }
  }
  // As ValueBlock::ClearFrom: scales may be NaN, too.
  __device__ __forceinline__ void ClearFrom(int first) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (ValueRow(i) < first) continue;
#pragma unroll
      for (int t = 0; t < kWords; ++t) codes[i][t] = 0;
      scales[i / 2] &= i % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
    }
  }

  __device__ __forceinline__ uint32_t Factor(int i) const {
    return Fp8Factor<T>(scales[i / 2] >> (i % 2 * 16) & 0xffffu);
  }
  __device__ __forceinline__ uint4 Wide(int i, int part) const {
    return Fp8Numbers<T>(make_uint2(codes[i][2 * part], codes[i][2 * part + 1]), Factor(i));
  }
  __device__ __forceinline__ uint2 Last8(int i) const {
    return Fp8Numbers<T>(codes[i][kWords - 1], Factor(i));
  }
  __device__ __forceinline__ uint32_t Last4(int i) const {
    const uint2 numbers = Last8(i);
    return static_cast<int>(threadIdx.x) / 4 % 2 == 0 ? numbers.x : numbers.y;
  }
};

}  // namespace stagecoach::kernels::cuda
