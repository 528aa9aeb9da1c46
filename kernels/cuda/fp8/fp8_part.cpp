#include "kernels/cuda/fp8/fp8_part.h"

namespace stagecoach::kernels::cuda {
namespace {

size_t ScalesAt(int32_t rows, int32_t cols) {
  constexpr size_t kAlignment = 256;
  return (static_cast<size_t>(rows) * static_cast<size_t>(cols) + kAlignment - 1) / kAlignment *
         kAlignment;
}

}  // namespace

Fp8Part Fp8PartOf(int32_t rows, int32_t cols, unsigned char* memory) {
  return {.codes = memory,
          .scales = reinterpret_cast<float*>(memory + ScalesAt(rows, cols)),
          .rows = rows,
          .cols = cols};
}

size_t Fp8PartBytes(int32_t rows, int32_t cols) {
  return ScalesAt(rows, cols) + static_cast<size_t>(rows) * sizeof(float);
}

}  // namespace stagecoach::kernels::cuda
