// Rows of ReferenceOps' KV caches, which are row-major within a block.
#pragma once

#include <cstdint>
#include <span>

#include "common/dtype.h"

namespace stagecoach::kernels {

// The place of a row in KvLayer::k or KvLayer::v.
struct KvRowPlace {
  DType dtype;
  int32_t block, kv_head, token;  // token: in the block
  int32_t n_kv_heads;
};

// row: [head_dim]
void StoreKvRow(std::span<const float> row, const KvRowPlace& at, void* cache);
void LoadKvRow(const void* cache, const KvRowPlace& at, std::span<float> row);

}  // namespace stagecoach::kernels
