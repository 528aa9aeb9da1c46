// Expands GGUF's quantized blocks to float32. Each element equals the result of
// gguf.quants.dequantize.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/loader/tensor_file.h"

namespace stagecoach::worker {

// Element `i` of `out` [n] becomes element `i` of the blocks (or plain elements) at `from`, which
// may be unaligned. REQUIRES: n is a multiple of the encoding's block size.
void Dequantize(Encoding encoding, const std::byte* from, int64_t n, float* out);

}  // namespace stagecoach::worker
