// Layout of the 16 tokens of one head in a KV block: [16, head_dim] elements of k and as many of v,
// as panels (panel.h). Attention therefore reads them like Gemm reads weights.
//   k: one panel, tokens as outputs, head_dim inputs
//   v: ceil(head_dim / 16) panels, 16 head elements as outputs (fewer in the last), tokens as
//   inputs
// Codes of kFp8 have the order of float32; the scales of the tokens follow (common/kv_fp8.h).
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/panel.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

static_assert(kBlockTokens == kPanelRows);

inline constexpr size_t kBlock = kBlockTokens;

// Bytes before the keys, or the values, of `kv_head` of `block`.
constexpr size_t KvHeadStart(DType dtype, size_t block, size_t kv_head, size_t n_kv_heads,
                             size_t head_dim) {
  return (block * n_kv_heads + kv_head) * KvBlockBytes(dtype, 1, static_cast<int32_t>(head_dim), 1);
}

// Index within a block and head.
constexpr size_t KIndex(DType dtype, size_t token, size_t i) { return PanelIndex(dtype, token, i); }

constexpr size_t VIndex(DType dtype, size_t token, size_t i, size_t head_dim) {
  const size_t strip = i / kPanelRows * kPanelRows;
  const size_t width = std::min(kPanelRows, head_dim - strip);
  return strip * kBlock + PanelIndex(dtype, i - strip, token, width);
}

}  // namespace stagecoach::kernels
