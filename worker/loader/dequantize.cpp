// Block layouts: github.com/ggml-org/ggml, ggml-common.h.
#include "worker/loader/dequantize.h"

#include <cstring>

#include "common/check.h"
#include "common/float_convert.h"

namespace stagecoach::worker {
namespace {

float LoadHalf(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return FloatFromF16(bits);
}

// {scale f16, 16 bytes}: low nibbles are elements 0-15, high ones 16-31; minus 8.
void BlockQ4_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((block[2 + i] >> 4) - 8);
  }
}

// {scale f16, 32 fifth bits, 16 bytes}: as Q4_0 with a fifth bit; minus 16.
void BlockQ5_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  uint32_t high;
  std::memcpy(&high, block + 2, sizeof(high));
  for (int i = 0; i < 16; ++i) {
    const int low = (block[6 + i] & 15) | static_cast<int>((high >> i & 1) << 4);
    const int top = (block[6 + i] >> 4) | static_cast<int>((high >> (i + 16) & 1) << 4);
    out[i] = d * static_cast<float>(low - 16);
    out[i + 16] = d * static_cast<float>(top - 16);
  }
}

// {scale f16, 32 int8}
void BlockQ8_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// Six-bit scale and minimum of sub-block `i` of 8, packed into 12 bytes.
struct ScaleMin {
  float scale, min;
};
ScaleMin UnpackScale(const uint8_t* packed, int i) {
  if (i < 4) {
    return {static_cast<float>(packed[i] & 63), static_cast<float>(packed[i + 4] & 63)};
  }
  const int scale = (packed[i + 4] & 15) | (packed[i - 4] >> 2 & 0x30);
  const int min = (packed[i + 4] >> 4) | (packed[i] >> 2 & 0x30);
  return {static_cast<float>(scale), static_cast<float>(min)};
}

// {scale f16, minimum f16, 12 bytes of sub-block scales, [32 bytes of fifth bits,] 128 bytes}: each
// 32 bytes of nibbles are two sub-blocks of 32, the low nibbles first. Fifth bits: bit i of byte l
// belongs to element l of sub-block i.
template <bool kFiveBits>
void BlockQ45_K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block), dmin = LoadHalf(block + 2);
  const uint8_t* high = block + 16;
  const uint8_t* low = high + (kFiveBits ? 32 : 0);
  for (int sub = 0; sub < 8; ++sub) {
    const ScaleMin packed = UnpackScale(block + 4, sub);
    const float scale = d * packed.scale, min = dmin * packed.min;
    for (int l = 0; l < 32; ++l) {
      const uint8_t both = low[sub / 2 * 32 + l];
      int q = sub % 2 == 0 ? both & 15 : both >> 4;
      if constexpr (kFiveBits) q |= (high[l] >> sub & 1) << 4;
      // Two roundings, as the reference: never one fused operation.
      const float product = scale * static_cast<float>(q);
      out[sub * 32 + l] = product - min;
    }
  }
}

// {128 bytes of low nibbles, 64 bytes of high pairs, 16 int8 scales, scale f16}: halves of 128
// elements; in each, 64 bytes of nibbles are four groups of 32 (low nibbles of the first and second
// 32 bytes, then the high ones); group g takes bits 2g, 2g + 1 of 32 bytes; minus 32.
void BlockQ6_K(const uint8_t* block, float* out) {
  const uint8_t* high = block + 128;
  const uint8_t* scales = block + 192;
  const float d = LoadHalf(block + 208);
  for (int half = 0; half < 2; ++half) {
    for (int group = 0; group < 4; ++group) {
      for (int l = 0; l < 32; ++l) {
        const uint8_t both = block[half * 64 + group % 2 * 32 + l];
        const int low = group < 2 ? both & 15 : both >> 4;
        const int q = (low | (high[half * 32 + l] >> (2 * group) & 3) << 4) - 32;
        const int at = half * 128 + group * 32 + l;
        const float scale = d * static_cast<float>(static_cast<int8_t>(scales[at / 16]));
        out[at] = scale * static_cast<float>(q);
      }
    }
  }
}

template <typename BlockFn>
void Blocks(Encoding encoding, const std::byte* from, int64_t n, float* out, BlockFn block) {
  const gguf::BlockLayout layout = *gguf::LayoutOf(encoding);
  SC_CHECK(n % layout.elements == 0);
  const uint8_t* at = reinterpret_cast<const uint8_t*>(from);
  for (int64_t i = 0; i < n; i += layout.elements, at += layout.bytes) block(at, out + i);
}

}  // namespace

void Dequantize(Encoding encoding, const std::byte* from, int64_t n, float* out) {
  switch (encoding) {
    case Encoding::kF32:
    case Encoding::kF16:
    case Encoding::kBF16:
      for (int64_t i = 0; i < n; ++i) {
        out[i] = LoadElement(from, *PlainDType(encoding), static_cast<size_t>(i));
      }
      return;
    case Encoding::kQ4_0:
      return Blocks(encoding, from, n, out, BlockQ4_0);
    case Encoding::kQ5_0:
      return Blocks(encoding, from, n, out, BlockQ5_0);
    case Encoding::kQ8_0:
      return Blocks(encoding, from, n, out, BlockQ8_0);
    case Encoding::kQ4_K:
      return Blocks(encoding, from, n, out, BlockQ45_K<false>);
    case Encoding::kQ5_K:
      return Blocks(encoding, from, n, out, BlockQ45_K<true>);
    case Encoding::kQ6_K:
      return Blocks(encoding, from, n, out, BlockQ6_K);
  }
}

}  // namespace stagecoach::worker
