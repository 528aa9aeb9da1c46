// Rows for tests that compare a cache of DType::kFp8 with one that holds the same numbers.
#pragma once

#include <span>
#include <vector>

#include "common/kv_fp8.h"
#include "kernels/kv_fp8_row.h"
#include "kernels/testing/attention_layer.h"

namespace stagecoach::kernels {

// Replaces the keys and values of `qkv` with the numbers that a cache of kFp8 would hold. A cache
// of float32 or bfloat16 holds these as they are. qkv: [n_tokens, qkv_width], for a RopeAppend that
// neither norms nor rotates
inline std::vector<float> ExactInFp8(const AttentionConfig& config, std::vector<float> qkv) {
  const auto dim = static_cast<size_t>(config.head_dim);
  const auto n_q = static_cast<size_t>(config.n_heads);
  const size_t n_all = n_q + 2 * static_cast<size_t>(config.n_kv_heads);
  std::vector<uint8_t> head(KvFp8HeadBytes(dim));
  for (size_t i = 0; i < qkv.size() / dim; ++i) {
    if (i % n_all < n_q) continue;
    const std::span<float> row(qkv.data() + i * dim, dim);
    StoreKvFp8Row(row, 0, head.data());
    LoadKvFp8Row(head.data(), 0, row);
  }
  return qkv;
}

}  // namespace stagecoach::kernels
