// Quantizes rows of a weight matrix: the inverse of DecodeRows (rows.h) for grouped codes.
//
// Round to nearest, without calibration. INT8 and INT4 are symmetric, with a scale per group of
// inputs; of a few scales, each group gets the one with the least squared error. FP8 has a scale
// per row, which takes the largest value to the largest code. The same values give the same bytes
// on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/encoding/encoding.h"

namespace stagecoach {

// The encoding that EncodeRows gives rows of `cols` inputs that are stored as `stored`. Empty: such
// rows do not divide into groups, and stay as they are. REQUIRES: code is kFp8, kInt8 or kInt4.
std::optional<Encoding> EncodingFor(Code code, DType stored, size_t cols);

// Writes rows [n_rows, cols] in the form of rows.h. REQUIRES: `encoding` is of EncodingFor.
void EncodeRows(const Encoding& encoding, const float* rows, size_t n_rows, size_t cols,
                uint8_t* out);

// The e4m3 code nearest to a value, the even one on a tie. Values beyond +-448 give +-448.
uint8_t Fp8FromFloat(float value);

}  // namespace stagecoach
