#include "kernels/cuda/gemm.h"

namespace stagecoach::kernels::cuda {

int32_t RowBucket(int32_t n_rows) {
  int32_t bucket = 1;
  for (;;) {
    if (n_rows <= bucket) return bucket;
    if (bucket >= 16 && n_rows <= bucket / 2 * 3) return bucket / 2 * 3;
    bucket *= 2;
  }
}

int32_t FewestRows(int32_t bucket) {
  int32_t n_rows = bucket;
  while (n_rows > 1 && RowBucket(n_rows - 1) == bucket) --n_rows;
  return n_rows;
}

}  // namespace stagecoach::kernels::cuda
