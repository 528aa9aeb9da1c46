#include "worker/model/kv_cache.h"

#include <fmt/format.h>

#include "common/check.h"
#include "common/status.h"

namespace stagecoach::worker {

KvCache::KvCache(const ModelSpec& spec, int32_t first_layer, int32_t n_layers, DType dtype)
    : spec_(spec),
      layers_(std::span(spec.layers)
                  .subspan(static_cast<size_t>(first_layer), static_cast<size_t>(n_layers))),
      dtype_(dtype) {}

uint64_t KvCache::layer_block_bytes() const {
  return static_cast<uint64_t>(spec_.n_kv_heads) * kernels::kBlockTokens *
         static_cast<uint64_t>(spec_.head_dim) * DTypeBytes(dtype_);
}

std::vector<uint64_t> KvCache::block_bytes() const {
  std::vector<uint64_t> bytes(spec_.kv_groups.size(), 0);
  for (const LayerSpec& layer : layers_) {
    bytes[static_cast<size_t>(layer.kv_group)] += 2 * layer_block_bytes();
  }
  return bytes;
}

absl::Status KvCache::Allocate(std::span<const uint64_t> n_blocks, kernels::Ops* ops) {
  if (n_blocks.size() != spec_.kv_groups.size()) {
    return absl::InvalidArgumentError(
        fmt::format("{} numbers of KV blocks for a model of {} KV groups", n_blocks.size(),
                    spec_.kv_groups.size()));
  }
  // Work in flight may still read the blocks that go away now.
  SC_RETURN_IF_ERROR(ops->Synchronize());
  buffers_.clear();
  std::vector<Layer> buffers;
  for (const LayerSpec& layer : layers_) {
    const uint64_t bytes = n_blocks[static_cast<size_t>(layer.kv_group)] * layer_block_bytes();
    Layer& buffer = buffers.emplace_back();
    SC_ASSIGN_OR_RETURN(buffer.k, ops->Allocate(bytes));
    SC_ASSIGN_OR_RETURN(buffer.v, ops->Allocate(bytes));
  }
  buffers_ = std::move(buffers);
  return absl::OkStatus();
}

kernels::KvLayer KvCache::layer(int32_t i) const {
  SC_CHECK(static_cast<size_t>(i) < buffers_.size());
  const Layer& buffer = buffers_[static_cast<size_t>(i)];
  return {buffer.k.data.get(), buffer.v.data.get(), dtype_};
}

}  // namespace stagecoach::worker
