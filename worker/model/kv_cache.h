// The paged keys and values of a stage's layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

class KvCache {
 public:
  // Covers layers [first_layer, first_layer + n_layers) of `spec`, which must outlive the cache.
  KvCache(const ModelSpec& spec, int32_t first_layer, int32_t n_layers, DType dtype);

  // The layers' parts of a block. Layers without keys and values of their own have none.
  std::vector<KvPart> parts() const;
  // By KV group: bytes of one block over these layers (0: the group has no layer here).
  std::vector<uint64_t> block_bytes() const;
  // `n_blocks` is by KV group. Frees the previous allocation first.
  absl::Status Allocate(std::span<const uint64_t> n_blocks, const LastingMemory& memory,
                        kernels::Ops* ops);
  // Layer first_layer + i, which is not recurrent. REQUIRES: Allocate().
  kernels::KvLayer layer(int32_t i) const;

 private:
  uint64_t layer_block_bytes(const LayerSpec& layer) const;  // of one array
  // Arrays that the cache keeps for the layer.
  int32_t NArrays(const LayerSpec& layer) const;

  const ModelSpec& spec_;
  const int32_t first_layer_;
  std::span<const LayerSpec> layers_;
  DType dtype_;
  struct Layer {
    // Start of each array [n_blocks, n_kv_heads, kBlockTokens, head_dim]; a layer with latents has
    // only k.
    uint64_t k, v;
  };
  // One allocation for all layers: a GPU rounds each allocation up to pages of 2 MiB, and our
  // memory accounting does not include that.
  kernels::Buffer memory_;
  std::vector<Layer> starts_;
};

}  // namespace stagecoach::worker
