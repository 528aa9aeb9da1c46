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

}  // namespace stagecoach::kernels::cuda
