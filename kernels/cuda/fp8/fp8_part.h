// FP8 matrices with plain rows of codes and a scale per row, which our kernels and cuBLASLt read
// alike. Experts, and FP8 matrices with other scales, are packed (packed/packed_layout.h).
//
// Memory of a part: {codes [rows][cols]}, aligned, {scales [rows], float32}. Of each four codes,
// the second and the third are exchanged: then a pair of inputs is in the lower or in the upper
// bytes of a word's halves, which become 16-bit values with fewer instructions. Inputs in FP8 have
// the same order, so products do not show it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

inline constexpr int32_t kFp8Cols = 64;  // a matrix has a multiple of this many inputs

// Where the code of an input is, and the other way round.
constexpr int32_t Fp8Place(int32_t input) {
  const int32_t of_four = input % 4;
  return of_four == 1 ? input + 1 : of_four == 2 ? input - 1 : input;
}

// Consecutive rows of a matrix.
struct Fp8Part {
  unsigned char* codes;
  float* scales;
  int32_t rows, cols;
};

// Whether rows of `cols` elements stay plain. Where rows share a scale, each gets it.
constexpr bool HasFp8Rows(const MatrixPart& part, int32_t cols) {
  const Encoding& encoding = part.encoding;
  return !part.is_expert && encoding.code == Code::kFp8 && encoding.group == 0 &&
         !encoding.is_permuted && cols % kFp8Cols == 0;
}
// Whether tensor cores multiply that many of them in FP8.
constexpr bool MultipliesFp8Rows(bool is_hopper, int32_t n_rows) {
  return is_hopper && n_rows % 16 == 0;
}

// The part in `memory`, which has Fp8PartBytes.
Fp8Part Fp8PartOf(int32_t rows, int32_t cols, unsigned char* memory);
size_t Fp8PartBytes(int32_t rows, int32_t cols);

}  // namespace stagecoach::kernels::cuda
