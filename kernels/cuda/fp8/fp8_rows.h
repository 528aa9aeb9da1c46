// What needs single codes of FP8 matrices with plain rows: loading them, their values in other
// types, embeddings, and quantizing the inputs of products in FP8.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/fp8/fp8_part.h"
#include "kernels/cuda/packed/few_rows.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// As PackStoredRows (packed/pack.h).
cudaError_t PackFp8Rows(const Stream& stream, const Fp8Part& part, int32_t first_row,
                        int32_t n_rows, const void* rows);

// As Expand (packed/expand.h). to: [part.rows, part.cols] of `dtype`, a 16-bit one.
cudaError_t ExpandFp8Rows(const Stream& stream, const Fp8Part& part, DType dtype, void* to);

// One part's share of Ops::Gemm.
struct Fp8Product {
  Fp8Part w;
  ConstAct x;         // [n_rows, w.cols]
  const float* bias;  // [w.rows] or null
  Act y;              // [n_rows, y_stride]: the part's outputs; float32 or x's type
  int32_t n_rows;
  int32_t y_stride;
  bool add_to_y;
};

// A product in float32: x and y are float32. Slow. A row's result does not depend on other rows.
cudaError_t PlainFp8Product(const Stream& stream, const Fp8Product& product);

// One part's share of Ops::Embed: tokens with ids of the part's rows.
struct Fp8Embed {
  Fp8Part table;
  int32_t first_row;   // id of the part's first row
  const int32_t* ids;  // [n_tokens]
  float scale;
  Act out;  // [n_tokens, table.cols]
  int32_t n_tokens;
};
cudaError_t EmbedFp8Rows(const Stream& stream, const Fp8Embed& args);

// Inputs as codes with a scale per row, which takes the largest value to the largest code. A row
// of zeros has the scale 0. A row does not depend on other rows.
struct Fp8Inputs {
  unsigned char* codes;  // [n_rows, cols]
  float* scales;         // [n_rows]
};
// x: [n_rows, cols] of 16 bits. cols: a multiple of kFp8Cols
cudaError_t QuantizeFp8Rows(const Stream& stream, ConstAct x, int32_t n_rows, int32_t cols,
                            const Fp8Inputs& out);

}  // namespace stagecoach::kernels::cuda
