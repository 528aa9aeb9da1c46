// Products in FP8: codes of inputs times codes of weights, on tensor cores. Gemms::RunFp8
// (gemm/gemm.h) computes them.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/fp8/fp8_part.h"
#include "kernels/cuda/fp8/fp8_rows.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

struct Fp8GemmArgs {
  Fp8Inputs x;
  Fp8Part w;
  Act y;  // [n_rows, y_stride]: the part's outputs
  int32_t n_rows;
  int32_t y_stride;
  bool add_to_y;
};

// Whether the device multiplies such weights in FP8.
inline bool MultipliesInFp8(const Stream& stream, const Fp8Part& w) {
  return MultipliesFp8Rows(stream.is_hopper, w.rows);
}

}  // namespace stagecoach::kernels::cuda
