// The rows of a KV cache of DType::kFp8, for all devices.
//
// A row, the numbers of one token and head, is stored as e4m3 codes and has a scale of its own: a
// power of two, so that multiplying by it is exact. It depends on nothing but the row. So no
// calibration is needed, and a sequence's cache does not depend on its batch, chunks or stages.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "common/kv_block.h"

namespace stagecoach {

// Exponents of scales. With the largest one, codes reach 57,344, which float16 can hold; larger
// numbers are stored as that. With the smallest one, float16 can hold the scale of a code's bits.
inline constexpr int32_t kMaxKvFp8Exponent = 7, kMinKvFp8Exponent = -32;

// The exponent of a row's scale: the smallest one with which codes, up to 448, reach `largest`, the
// row's largest magnitude. The row divided by the scale is rounded to codes (Fp8FromFloat).
constexpr int32_t KvFp8Exponent(float largest) {
  // 448 is 1.75 * 2^8. The addition carries into the exponent if the mantissa is above 1.75.
  const uint32_t rounded = (std::bit_cast<uint32_t>(largest) & 0x7fffffffu) + 0x1fffffu;
  const int32_t exponent = static_cast<int32_t>(rounded >> 23) - 127 - 8;
  if (exponent < kMinKvFp8Exponent) return kMinKvFp8Exponent;
  return exponent > kMaxKvFp8Exponent ? kMaxKvFp8Exponent : exponent;
}

constexpr float PowerOfTwo(int32_t exponent) {  // of normal numbers
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

// One head's keys or values in a KV block: codes of kKvBlockTokens rows, then their scales as
// bfloat16. The device chooses the order of the codes. Between devices they are row-major.
constexpr size_t KvFp8CodeBytes(size_t head_dim) {
  return static_cast<size_t>(kKvBlockTokens) * head_dim;
}
constexpr size_t KvFp8HeadBytes(size_t head_dim) {
  return KvFp8CodeBytes(head_dim) + static_cast<size_t>(kKvBlockTokens) * sizeof(uint16_t);
}
// The bits of a scale, and the scale.
constexpr uint16_t KvFp8ScaleBits(int32_t exponent) {
  return static_cast<uint16_t>((exponent + 127) << 7);
}
constexpr float KvFp8Scale(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace stagecoach
