#include "kernels/kv_fp8_row.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/encoding/encode_rows.h"
#include "common/encoding/rows.h"
#include "common/kv_fp8.h"

namespace stagecoach::kernels {
namespace {

size_t ScaleOffset(size_t head_dim, size_t token) {
  return KvFp8CodeBytes(head_dim) + token * sizeof(uint16_t);
}

}  // namespace

uint16_t EncodeKvFp8Row(std::span<const float> row, uint8_t* codes) {
  // Magnitudes compare like their bits. Any NaN is above all numbers, wherever it stands.
  uint32_t largest = 0;
  for (const float x : row) largest = std::max(largest, std::bit_cast<uint32_t>(x) & 0x7fffffffu);
  const int32_t exponent = KvFp8Exponent(std::bit_cast<float>(largest));
  const float inverse = PowerOfTwo(-exponent);
  for (size_t i = 0; i < row.size(); ++i) codes[i] = Fp8FromFloat(row[i] * inverse);
  return KvFp8ScaleBits(exponent);
}

void StoreKvFp8Row(std::span<const float> row, size_t token, uint8_t* head) {
  const uint16_t scale = EncodeKvFp8Row(row, head + token * row.size());
  std::memcpy(head + ScaleOffset(row.size(), token), &scale, sizeof(scale));
}

void LoadKvFp8Row(const uint8_t* head, size_t token, std::span<float> row) {
  uint16_t bits;
  std::memcpy(&bits, head + ScaleOffset(row.size(), token), sizeof(bits));
  const float scale = KvFp8Scale(bits);
  const uint8_t* const codes = head + token * row.size();
  for (size_t i = 0; i < row.size(); ++i) row[i] = FloatFromFp8(codes[i]) * scale;
}

}  // namespace stagecoach::kernels
