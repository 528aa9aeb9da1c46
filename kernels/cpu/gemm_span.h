// A part of a matrix whose rows share one encoding. A GEMM processes one part at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

namespace stagecoach::kernels {

struct GemmSpan {
  const GemmArgs* args;
  const uint8_t* panels;
  size_t panel_bytes;
  size_t n_panels;
  size_t n_inputs;      // args->w->cols
  size_t first_output;  // in the columns of args->y
  size_t n_outputs;
  Encoding encoding = {};
  const int32_t* order = nullptr;  // of the inputs in the weights; null: the model's
};

}  // namespace stagecoach::kernels
