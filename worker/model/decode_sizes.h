// Row counts for which decode steps are captured as CUDA graphs. A step with fewer rows is padded
// to the next size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/row_sizes.h"

namespace stagecoach::worker {

// Ascending; the last one is max_rows. The spacing grows where a few extra rows cost relatively
// less.
inline std::vector<int32_t> DecodeSizes(int32_t max_rows) {
  std::vector<int32_t> sizes;
  for (int32_t n = 1; n < max_rows;) {
    sizes.push_back(n);
    n += n < 8 ? n : n < 64 ? 8 : n < 256 ? 16 : n < 1024 ? 32 : 128;
  }
  sizes.push_back(max_rows);
  return sizes;
}

// Row counts that represent all possible steps: the sizes above, then the sizes for which GEMM
// algorithms are chosen. No size may be skipped: the first use of a library kernel loads it, and
// loading waits until the GPU is idle. Between stages a receive is always waiting on the GPU, so
// that wait would never end.
inline std::vector<int32_t> StepSizes(int32_t max_decodes, int32_t max_tokens) {
  std::vector<int32_t> sizes = DecodeSizes(std::min(max_decodes, max_tokens));
  for (int32_t size = 1; size < max_tokens; size = RowSizeAfter(size)) {
    if (size > sizes.back()) sizes.push_back(size);
  }
  if (sizes.back() < max_tokens) sizes.push_back(max_tokens);
  return sizes;
}

}  // namespace stagecoach::worker
