#include "kernels/cpu/bench/random_matrix.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "common/encoding/blocks.h"
#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "kernels/cpu/bench/cpu_bench.h"

namespace stagecoach::kernels {
namespace {

// Blocks with random codes and small scales.
std::vector<uint8_t> RandomBlocks(Code type, size_t n_elements) {
  const size_t block_bytes = BlockBytes(type);
  std::vector<uint8_t> bytes(n_elements / FormOf(type).elements * block_bytes);
  std::mt19937 random(1);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  constexpr uint16_t kScale = 0x0400;  // 2^-14
  for (size_t i = 0; i < bytes.size(); i += block_bytes) {
    std::memcpy(bytes.data() + i + (type == Code::kQ6_K ? 208 : 0), &kScale, 2);
    if (FormOf(type).has_minima) std::memcpy(bytes.data() + i + 2, &kScale, 2);
  }
  return bytes;
}

// Random codes, zeros of 8, and scales that keep the weights near 1 / sqrt(4096).
std::vector<uint8_t> RandomGroups(const Encoding& encoding, int32_t n, int32_t k) {
  const size_t cols = static_cast<size_t>(k), row_bytes = RowBytes(encoding, cols);
  std::vector<uint8_t> bytes(static_cast<size_t>(n) * row_bytes);
  std::mt19937 random(1);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const float scale = encoding.code == Code::kInt4 ? 0x1p-8f : 0x1p-13f;
  for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
    const GroupedRow<uint8_t> row = GroupedRowAt(encoding, cols, bytes.data() + r * row_bytes);
    for (size_t g = 0; g < GroupCount(encoding, cols); ++g) {
      if (encoding.code == Code::kMxFp4) {
        row.scales[g] = 127 - 7;
        continue;
      }
      if (encoding.code == Code::kNvFp4) {
        row.scales[g] = 0x38;  // 1
        StoreElement(row.matrix_scale, DType::kF32, 0, 0x1p-7f);
        continue;
      }
      StoreElement(row.scales, encoding.scale, g, scale);
      if (encoding.has_zeros) row.zeros[g] = 8;
    }
  }
  return bytes;
}

}  // namespace

Encoding Grouped(Code code, DType scale, int32_t group, bool has_zeros) {
  Encoding encoding(code);
  encoding.scale = scale;
  encoding.group = group;
  encoding.has_zeros = has_zeros;
  encoding.rows_share_scales = code == Code::kFp8 && group > 0;
  return encoding;
}

Matrix MakeMatrix(Ops& ops, int32_t n, int32_t k, const Encoding& type) {
  const size_t elements = static_cast<size_t>(n) * static_cast<size_t>(k);
  if (const std::optional<DType> plain = PlainDType(type.code)) {
    const std::vector<float> weights = RandomFloats(elements, 1 / std::sqrt(static_cast<float>(k)));
    Matrix w = *ops.NewMatrix(n, k, *plain);
    ops.PackRows(w, 0, n, weights.data(), DType::kF32);
    return w;
  }
  const MatrixPart part{n, type};
  Matrix w = *ops.NewMatrix(std::span(&part, 1), k);
  ops.PackStored(
      w, 0, n,
      (IsGrouped(type.code) ? RandomGroups(type, n, k) : RandomBlocks(type.code, elements)).data());
  return w;
}

}  // namespace stagecoach::kernels
