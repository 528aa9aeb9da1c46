#include "kernels/cpu/embed.h"

#include <algorithm>

#include "common/check.h"
#include "common/float_convert.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/panel.h"

namespace stagecoach::kernels {
namespace {

// out[i] = row[i] * scale, added to out when kAdd; out: [table.cols]
template <DType kType, bool kAdd>
void ReadRow(const Matrix& table, size_t row, float scale, float* out) {
  SC_CHECK(row < static_cast<size_t>(table.rows));
  const uint8_t* const panel = PanelOf(table, row / kPanelRows);
  for (size_t col = 0; col < static_cast<size_t>(table.cols); ++col) {
    const float value = scale * LoadElement(panel, kType, PanelIndex(kType, row % kPanelRows, col));
    out[col] = kAdd ? out[col] + value : value;
  }
}

template <bool kAdd>
void ReadRow(const Matrix& table, int32_t row, float scale, float* out) {
  const size_t index = static_cast<size_t>(row);  // a negative row becomes one past the end
  switch (table.dtype) {
    case DType::kF32:
      return ReadRow<DType::kF32, kAdd>(table, index, scale, out);
    case DType::kBF16:
      return ReadRow<DType::kBF16, kAdd>(table, index, scale, out);
    case DType::kF16:
      return ReadRow<DType::kF16, kAdd>(table, index, scale, out);
  }
}

}  // namespace

void CpuEmbed(const EmbedArgs& args, ThreadPool& pool) {
  const Matrix* const positions = args.position_table;
  const size_t width = static_cast<size_t>((args.table != nullptr ? args.table : positions)->cols);
  RunPieces(pool, static_cast<size_t>(args.n_tokens), width, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      float* const out = args.out + t * width;
      if (args.table == nullptr) {
        ReadRow<false>(*positions, args.positions[t] + args.position_offset, 1.0f, out);
        continue;
      }
      ReadRow<false>(*args.table, args.ids[t], args.scale, out);
      if (positions != nullptr) {
        ReadRow<true>(*positions, args.positions[t] + args.position_offset, 1.0f, out);
      }
    }
  });
}

void CpuGatherRows(const GatherRowsArgs& args, ThreadPool& pool) {
  const size_t width = static_cast<size_t>(args.width);
  RunPieces(pool, static_cast<size_t>(args.n_rows), width, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      std::copy_n(args.x + static_cast<size_t>(args.rows[r]) * width, width, args.out + r * width);
    }
  });
}

}  // namespace stagecoach::kernels
