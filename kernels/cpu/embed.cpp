#include "kernels/cpu/embed.h"

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "common/float_convert.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/matrix_parts.h"

namespace stagecoach::kernels {
namespace {

// Reads row `row` of a packed table. out: [table.cols]
void ReadRow(const Matrix& table, size_t row, float* out) {
  SC_CHECK(row < static_cast<size_t>(table.rows));
  MatrixParts part(table);
  while (part.first_row() + part.n_rows() <= row) part.Next();
  ReadStoredRow(part, static_cast<size_t>(table.cols), row - part.first_row(), out);
}

size_t RowIndex(int32_t row) {
  return static_cast<size_t>(row);
}  // a negative index becomes too large

}  // namespace

void CpuEmbed(const EmbedArgs& args, ThreadPool& pool) {
  const Matrix* const positions = args.position_table;
  const size_t width = static_cast<size_t>((args.table != nullptr ? args.table : positions)->cols);
  RunPieces(pool, static_cast<size_t>(args.n_tokens), width, [&](size_t begin, size_t end) {
    std::vector<float> position(args.table != nullptr && positions != nullptr ? width : 0);
    for (size_t t = begin; t < end; ++t) {
      float* const out = args.out.f32() + t * width;
      const auto read_position = [&](float* to) {
        ReadRow(*positions, RowIndex(args.positions[t] + args.position_offset), to);
      };
      if (args.table == nullptr) {
        read_position(out);
        continue;
      }
      ReadRow(*args.table, RowIndex(args.ids[t]), out);
      for (size_t i = 0; i < width; ++i) out[i] *= args.scale;
      if (positions == nullptr) continue;
      read_position(position.data());
      for (size_t i = 0; i < width; ++i) out[i] += position[i];
    }
  });
}

void CpuGatherRows(const GatherRowsArgs& args, ThreadPool& pool) {
  const size_t width = static_cast<size_t>(args.width);
  RunPieces(pool, static_cast<size_t>(args.n_rows), width, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      const size_t row = args.rows != nullptr ? static_cast<size_t>(args.rows[r]) : r;
      std::copy_n(args.x.f32() + row * width, width, args.out.f32() + r * width);
    }
  });
}

void CpuConvert(ConstAct from, Act to, int64_t n, ThreadPool& pool) {
  RunPieces(pool, static_cast<size_t>(n), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      StoreElement(to.data, to.dtype, i, LoadElement(from.data, from.dtype, i));
    }
  });
}

void CpuScale(float* x, int64_t n, float factor, ThreadPool& pool) {
  RunPieces(pool, static_cast<size_t>(n), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) x[i] *= factor;
  });
}

}  // namespace stagecoach::kernels
