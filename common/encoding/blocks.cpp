#include "common/encoding/blocks.h"

#include <cstring>

#include "common/check.h"
#include "common/float_convert.h"

namespace stagecoach {
namespace {

uint16_t LoadHalf(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

// Block: {scale f16, [32 fifth bits,] 16 bytes}. Low nibbles are elements 0-15, high nibbles 16-31.
template <bool kFiveBits>
void UnpackQ45_0(const uint8_t* block, BlockCodes* out) {
  out->scale = LoadHalf(block);
  uint32_t high = 0;
  if (kFiveBits) std::memcpy(&high, block + 2, sizeof(high));
  const uint8_t* const low = block + (kFiveBits ? 6 : 2);
  for (int i = 0; i < 16; ++i) {
    out->codes[i] = static_cast<uint8_t>((low[i] & 15) | (high >> i & 1) << 4);
    out->codes[i + 16] = static_cast<uint8_t>((low[i] >> 4) | (high >> (i + 16) & 1) << 4);
  }
}

// Block: {scale f16, 32 int8}.
void UnpackQ8_0(const uint8_t* block, BlockCodes* out) {
  out->scale = LoadHalf(block);
  std::memcpy(out->codes, block + 2, 32);
}

// Block: {scale f16, minimum f16, 12 bytes of six-bit scales and minima, [32 bytes of fifth bits,]
// 128 bytes of nibbles}. Each 32 bytes of nibbles hold two groups of 32 elements, the low nibbles
// first. Fifth bits: bit i of byte l belongs to element l of group i.
template <bool kFiveBits>
void UnpackQ45_K(const uint8_t* block, BlockCodes* out) {
  out->scale = LoadHalf(block);
  out->minimum = LoadHalf(block + 2);
  const uint8_t* const packed = block + 4;
  for (int i = 0; i < 4; ++i) {
    out->sub_scales[i] = packed[i] & 63;
    out->sub_minima[i] = packed[i + 4] & 63;
    out->sub_scales[i + 4] = static_cast<uint8_t>((packed[i + 8] & 15) | (packed[i] >> 2 & 0x30));
    out->sub_minima[i + 4] =
        static_cast<uint8_t>((packed[i + 8] >> 4) | (packed[i + 4] >> 2 & 0x30));
  }
  const uint8_t* const high = block + 16;
  const uint8_t* const low = high + (kFiveBits ? 32 : 0);
  for (int group = 0; group < 8; ++group) {
    for (int l = 0; l < 32; ++l) {
      const uint8_t both = low[group / 2 * 32 + l];
      int code = group % 2 == 0 ? both & 15 : both >> 4;
      if constexpr (kFiveBits) code |= (high[l] >> group & 1) << 4;
      out->codes[group * 32 + l] = static_cast<uint8_t>(code);
    }
  }
}

// Block: {128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales, scale f16}, in two
// halves of 128 elements. In each half, 64 bytes of nibbles hold four groups of 32: the low nibbles
// of the first and of the second 32 bytes, then the high nibbles. Group g takes bits 2g and 2g + 1
// of 32 bytes of high pairs.
void UnpackQ6_K(const uint8_t* block, BlockCodes* out) {
  const uint8_t* const high = block + 128;
  std::memcpy(out->sub_scales, block + 192, 16);
  out->scale = LoadHalf(block + 208);
  for (int half = 0; half < 2; ++half) {
    for (int group = 0; group < 4; ++group) {
      for (int l = 0; l < 32; ++l) {
        const uint8_t both = block[half * 64 + group % 2 * 32 + l];
        const int low = group < 2 ? both & 15 : both >> 4;
        out->codes[half * 128 + group * 32 + l] =
            static_cast<uint8_t>(low | (high[half * 32 + l] >> (2 * group) & 3) << 4);
      }
    }
  }
}

// Block: {scale f16, 8 high bit pairs of scales, 4 bytes of their low nibbles, 128 bytes of
// nibbles}. Group g of 32 elements has pair g and nibble g, a number of six bits from which 32 is
// subtracted, and 16 bytes of nibbles: the low ones are its elements 0-15.
void UnpackIQ4_XS(const uint8_t* block, BlockCodes* out) {
  out->scale = LoadHalf(block);
  for (int group = 0; group < 8; ++group) {
    const int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
    const int high = block[2 + group / 4] >> (group % 4 * 2) & 3;
    out->sub_scales[group] = static_cast<uint8_t>((low | high << 4) - 32);
    for (int l = 0; l < 16; ++l) {
      const uint8_t both = block[8 + group * 16 + l];
      out->codes[group * 32 + l] = both & 15;
      out->codes[group * 32 + 16 + l] = both >> 4;
    }
  }
}

}  // namespace

size_t BlockBytes(Code code) {
  switch (code) {
    case Code::kQ4_0:
    case Code::kIQ4_NL:
      return 2 + 16;
    case Code::kIQ4_XS:
      return 2 + 2 + 4 + 128;
    case Code::kQ5_0:
      return 2 + 4 + 16;
    case Code::kQ8_0:
      return 2 + 32;
    case Code::kQ4_K:
      return 4 + 12 + 128;
    case Code::kQ5_K:
      return 4 + 12 + 32 + 128;
    case Code::kQ6_K:
      return 128 + 64 + 16 + 2;
    default:
      SC_CHECK(IsGgufBlock(code));
      return 0;
  }
}

void UnpackBlock(Code code, const uint8_t* block, BlockCodes* codes) {
  switch (code) {
    case Code::kQ4_0:
    case Code::kIQ4_NL:
      return UnpackQ45_0<false>(block, codes);
    case Code::kIQ4_XS:
      return UnpackIQ4_XS(block, codes);
    case Code::kQ5_0:
      return UnpackQ45_0<true>(block, codes);
    case Code::kQ8_0:
      return UnpackQ8_0(block, codes);
    case Code::kQ4_K:
      return UnpackQ45_K<false>(block, codes);
    case Code::kQ5_K:
      return UnpackQ45_K<true>(block, codes);
    case Code::kQ6_K:
      return UnpackQ6_K(block, codes);
    default:
      SC_CHECK(IsGgufBlock(code));
  }
}

void BlockValues(const BlockForm& form, const BlockCodes& codes, float* out) {
  const float d = FloatFromF16(codes.scale);
  for (size_t g = 0; g < form.elements / form.group; ++g) {
    float scale = d, minimum = 0;
    if (form.has_minima) {
      scale = d * static_cast<float>(codes.sub_scales[g]);
      minimum = FloatFromF16(codes.minimum) * static_cast<float>(codes.sub_minima[g]);
    } else if (form.has_sub_scales()) {
      scale = d * static_cast<float>(static_cast<int8_t>(codes.sub_scales[g]));
    }
    for (size_t i = g * form.group; i < (g + 1) * form.group; ++i) {
      const int number = form.bits == 8   ? static_cast<int8_t>(codes.codes[i])
                         : form.has_table ? kIQ4Values[codes.codes[i]]
                                          : codes.codes[i];
      // Round twice, as the reference does; a fused multiply-add would round once.
      const float product = scale * static_cast<float>(number - form.zero);
      out[i] = form.has_minima ? product - minimum : product;
    }
  }
}

}  // namespace stagecoach
