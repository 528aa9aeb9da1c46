// The numbers of rows for which decode steps are recorded: a step of fewer rows is padded to the
// next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/row_sizes.h"

namespace stagecoach::worker {

// Rising, the last one max_rows. Coarser where a few rows more matter less.
inline std::vector<int32_t> DecodeSizes(int32_t max_rows) {
  std::vector<int32_t> sizes;
  for (int32_t n = 1; n < max_rows;) {
    sizes.push_back(n);
    n += n < 8 ? n : n < 64 ? 8 : n < 256 ? 16 : n < 1024 ? 32 : 128;
  }
  sizes.push_back(max_rows);
  return sizes;
}

// Of the row counts that a step may have, some that stand for all: those above, then those for
// which ways to products are chosen. None may be left out: a library's kernel that a step is the
// first to use is loaded only when the GPU has no work, and between stages there is always a
// receive that waits.
inline std::vector<int32_t> StepSizes(int32_t max_decodes, int32_t max_tokens) {
  std::vector<int32_t> sizes = DecodeSizes(std::min(max_decodes, max_tokens));
  for (int32_t size = 1; size < max_tokens; size = RowSizeAfter(size)) {
    if (size > sizes.back()) sizes.push_back(size);
  }
  if (sizes.back() < max_tokens) sizes.push_back(max_tokens);
  return sizes;
}

}  // namespace stagecoach::worker
