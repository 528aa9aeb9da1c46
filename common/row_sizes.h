// Row counts for which GEMM algorithms are chosen: 2^n and 3 * 2^n. A step uses the algorithms of
// the next size at or above its row count, so it is most efficient when it has exactly that many
// rows.
#pragma once

#include <bit>
#include <cstdint>

namespace stagecoach {

// Returns the next larger size. From 1 on: 1, 2, 4, 8, 16, 24, 32, 48, 64, ...
constexpr int32_t RowSizeAfter(int32_t size) {
  constexpr int32_t kFirstHalfway = 16;
  if (size < kFirstHalfway) return size * 2;
  return std::has_single_bit(static_cast<uint32_t>(size)) ? size / 2 * 3 : size / 3 * 4;
}

// Returns the size that `n_rows` is rounded up to.
constexpr int32_t RowSizeFor(int32_t n_rows) {
  int32_t size = 1;
  while (size < n_rows) size = RowSizeAfter(size);
  return size;
}

// Returns the smallest number of rows that is rounded up to `size`.
constexpr int32_t FewestRowsOf(int32_t size) {
  int32_t before = 0;
  for (int32_t s = 1; s < size; s = RowSizeAfter(s)) before = s;
  return before + 1;
}

}  // namespace stagecoach
