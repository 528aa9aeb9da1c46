// GGUF's quantized blocks to float32, element for element what gguf.quants.dequantize computes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/loader/tensor_file.h"

namespace stagecoach::worker {

// Element `i` of `out` [n] is element `i` of the blocks (or plain elements) at `from`, which need
// not be aligned. REQUIRES: n is a multiple of the encoding's block.
void Dequantize(Encoding encoding, const std::byte* from, int64_t n, float* out);

}  // namespace stagecoach::worker
