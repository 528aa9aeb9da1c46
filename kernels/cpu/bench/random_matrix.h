// Matrices with random weights in any encoding.
#pragma once

#include "common/encoding/encoding.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

// Codes in groups of `group` inputs, 0: of whole rows.
Encoding Grouped(Code code, DType scale, int32_t group, bool has_zeros);

// [n, k], with weights near 1 / sqrt(k) if they are floats, and small ones else.
Matrix MakeMatrix(Ops& ops, int32_t n, int32_t k, const Encoding& type);

}  // namespace stagecoach::kernels
