#include "kernels/cpu/fp8_panel.h"

#include <cstring>

#include "common/encoding/rows.h"
#include "common/float_convert.h"

namespace stagecoach::kernels {
namespace {

size_t ScaleIndex(const Encoding& encoding, size_t group, size_t row) {
  return encoding.rows_share_scales ? group : group * kPanelRows + row;
}

size_t CodeIndex(size_t col, size_t row) {
  return col / kFp8Line * 64 + row * kFp8Line + col % kFp8Line;
}

}  // namespace

void PackFp8Row(const uint8_t* from, const Encoding& encoding, size_t cols, size_t row,
                uint8_t* panel) {
  const GroupedRow<const uint8_t> source = GroupedRowAt(encoding, cols, from);
  float* const scales = reinterpret_cast<float*>(panel);
  // All rows would write the same value, from several threads.
  if (!encoding.rows_share_scales || row == 0) {
    for (size_t g = 0; g < GroupCount(encoding, cols); ++g) {
      scales[ScaleIndex(encoding, g, row)] = LoadElement(source.scales, DType::kF32, g) * 0x1p120f;
    }
  }
  uint8_t* const codes = panel + Fp8ScaleBytes(cols, encoding);
  for (size_t col = 0; col < cols; ++col) codes[CodeIndex(col, row)] = source.codes[col];
}

void ReadFp8Row(const uint8_t* panel, const Encoding& encoding, size_t cols, size_t row,
                float* out) {
  const float* const scales = reinterpret_cast<const float*>(panel);
  const uint8_t* const codes = panel + Fp8ScaleBytes(cols, encoding);
  const size_t group = GroupOf(encoding, cols);
  for (size_t col = 0; col < cols; ++col) {
    const float scale = scales[ScaleIndex(encoding, col / group, row)] * 0x1p-120f;
    out[col] = FloatFromFp8(codes[CodeIndex(col, row)]) * scale;
  }
}

}  // namespace stagecoach::kernels
