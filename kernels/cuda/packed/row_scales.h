// The scales of a block's groups for an output, in registers as they are stored. They are converted
// when a group ends. BlockScales (packed_codes.h) converts some at the block's start, and keeps
// addresses: with it, the Q4_K kernel of one_row.h spills 136 bytes instead of 12.
#pragma once

#include "kernels/cuda/packed/packed_codes.h"

namespace stagecoach::kernels::cuda {

// kBytes of memory in registers: 1, 2, 4, 8 or 16, aligned to as many.
template <int kBytes>
struct RawBytes {
  uint32_t words[(kBytes + 3) / 4];

  __device__ __forceinline__ void Load(const unsigned char* from) {
    if constexpr (kBytes == 16) {
      const auto all = *reinterpret_cast<const uint4*>(from);
      words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else if constexpr (kBytes == 8) {
      const auto all = *reinterpret_cast<const uint2*>(from);
      words[0] = all.x, words[1] = all.y;
    } else if constexpr (kBytes == 4) {
      words[0] = *reinterpret_cast<const uint32_t*>(from);
    } else if constexpr (kBytes == 2) {
      words[0] = *reinterpret_cast<const uint16_t*>(from);
    } else {
      words[0] = *from;
    }
  }
  __device__ __forceinline__ uint16_t Half(int i) const {
    return static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
  }
  // As a float, without a conversion.
  __device__ __forceinline__ float FloatOfByte(int i) const {
    const uint32_t bits =
        __byte_perm(words[i / 4], 0x4b000000u, 0x7650u + static_cast<unsigned>(i % 4));
    return __uint_as_float(bits) - 8388608.0f;
  }
};

// What a group's sum is multiplied by, and what its codes have subtracted before and after that.
struct GroupScale {
  float scale, zero = 0, minimum = 0;
};

// The scales of an output. Plain ones of 16 bits, for groups of 32 * 2^kGroupShift inputs.
template <typename Type>
struct OutputScales {
  static constexpr int kGroups = kBlockChunks >> Type::kGroupShift;
  RawBytes<2 * kGroups> scales;
  RawBytes<kGroups> zeros;

  // header: of the block; row: of the tile
  __device__ __forceinline__ void Load(const PackedPart& w, const unsigned char* header, int row) {
    scales.Load(header + row * w.row_stride);
    if (w.zeros_at > 0) zeros.Load(header + w.zeros_at + row * kGroups);
  }
  // i: of the block's groups
  __device__ __forceinline__ GroupScale Of(const PackedPart& w, int i) const {
    const uint16_t bits = scales.Half(i);
    return {.scale = w.scale_kind == ScaleKind::kBF16 ? ToFloat(BF16{bits}) : ToFloat(F16{bits}),
            .zero = w.zeros_at > 0 ? zeros.FloatOfByte(i)
                                   : static_cast<float>(kUsualZero<Type::kForm>)};
  }
};
template <>
struct OutputScales<PackedType<PackedForm::kQ4K, 0>> {
  RawBytes<4> factors;  // scale and minimum, float16
  RawBytes<16> bytes;   // 8 scales, 8 minima

  __device__ __forceinline__ void Load(const PackedPart&, const unsigned char* header, int row) {
    factors.Load(header + 4 * row);
    bytes.Load(header + 4 * kTileRows + 16 * row);
  }
  __device__ __forceinline__ GroupScale Of(const PackedPart&, int i) const {
    return {.scale = TimesByte(ToFloat(F16{factors.Half(0)}), bytes.words[i / 4], i % 4),
            .minimum = TimesByte(ToFloat(F16{factors.Half(1)}), bytes.words[2 + i / 4], i % 4)};
  }
};
template <>
struct OutputScales<PackedType<PackedForm::kMxFp4, 0>> {
  RawBytes<8> exponents;

  __device__ __forceinline__ void Load(const PackedPart&, const unsigned char* header, int row) {
    exponents.Load(header + kBlockChunks * row);
  }
  __device__ __forceinline__ GroupScale Of(const PackedPart&, int i) const {
    return {.scale = ScaleOfExponent(exponents.words[i / 4], i % 4)};
  }
};

}  // namespace stagecoach::kernels::cuda
