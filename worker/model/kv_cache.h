// The paged keys and values of a stage's layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/model_spec.h"
#include "kernels/ops.h"

namespace stagecoach::worker {

class KvCache {
 public:
  // `spec` outlives the cache; layers [first_layer, first_layer + n_layers) of it.
  KvCache(const ModelSpec& spec, int32_t first_layer, int32_t n_layers, DType dtype);

  // By KV group: bytes of one block over these layers (0: the group has none of them).
  std::vector<uint64_t> block_bytes() const;
  // By KV group. Frees what was there first.
  absl::Status Allocate(std::span<const uint64_t> n_blocks, kernels::Ops* ops);
  // Of layer first_layer + i. REQUIRES: Allocate().
  kernels::KvLayer layer(int32_t i) const;

 private:
  uint64_t layer_block_bytes() const;  // of the keys alone

  const ModelSpec& spec_;
  std::span<const LayerSpec> layers_;
  DType dtype_;
  struct Layer {
    uint64_t k, v;  // where [n_blocks, n_kv_heads, kBlockTokens, head_dim] begin
  };
  // One allocation: a GPU gives each whole pages of 2 MiB, which nobody counts.
  kernels::Buffer memory_;
  std::vector<Layer> starts_;
};

}  // namespace stagecoach::worker
