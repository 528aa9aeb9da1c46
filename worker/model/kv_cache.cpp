#include "worker/model/kv_cache.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

constexpr uint64_t kAlignment = 256;  // the alignment of an allocation's start that kernels expect

}  // namespace

KvCache::KvCache(const ModelSpec& spec, int32_t first_layer, int32_t n_layers, DType dtype)
    : spec_(spec),
      first_layer_(first_layer),
      layers_(std::span(spec.layers)
                  .subspan(static_cast<size_t>(first_layer), static_cast<size_t>(n_layers))),
      dtype_(dtype) {}

int32_t KvCache::NArrays(const LayerSpec& layer) const {
  return layer.has_attention() ? NCachedVectors(spec_.heads(layer).kv_of_row) : 0;
}

uint64_t KvCache::layer_block_bytes(const LayerSpec& layer) const {
  if (NArrays(layer) == 0) return 0;
  const HeadShape heads = spec_.heads(layer);
  return kernels::KvBlockBytes(dtype_, heads.n_kv_heads, heads.head_dim, /*n_vectors=*/1);
}

std::vector<KvPart> KvCache::parts() const {
  std::vector<KvPart> parts;
  int32_t layer = first_layer_;
  for (const LayerSpec& spec : layers_) {
    const KvPart part{.layer = layer++,
                      .kv_group = spec.kv_group,
                      .bytes = static_cast<uint64_t>(NArrays(spec)) * layer_block_bytes(spec)};
    if (part.bytes > 0) parts.push_back(part);
  }
  return parts;
}

std::vector<uint64_t> KvCache::block_bytes() const {
  std::vector<uint64_t> bytes(spec_.kv_groups.size(), 0);
  for (const KvPart& part : parts()) bytes[static_cast<size_t>(part.kv_group)] += part.bytes;
  return bytes;
}

absl::Status KvCache::Allocate(std::span<const uint64_t> n_blocks, const LastingMemory& memory,
                               kernels::Ops* ops) {
  if (n_blocks.size() != spec_.kv_groups.size()) {
    return absl::InvalidArgumentError(
        fmt::format("KV blocks are given for {} KV groups, but the model has {}", n_blocks.size(),
                    spec_.kv_groups.size()));
  }
  // Work in flight may still read the blocks that are freed here.
  SC_RETURN_IF_ERROR(ops->Synchronize());
  memory_ = {};
  starts_.clear();
  uint64_t bytes = 0;
  const auto take = [&bytes](uint64_t n) {
    const uint64_t start = bytes;
    bytes += (n + kAlignment - 1) / kAlignment * kAlignment;
    return start;
  };
  std::vector<Layer> starts;
  for (const LayerSpec& layer : layers_) {
    const uint64_t n = NArrays(layer) == 0 ? 0
                                           : n_blocks[static_cast<size_t>(layer.kv_group)] *
                                                 layer_block_bytes(layer);
    starts.push_back({.k = take(n), .v = take(NArrays(layer) > 1 ? n : 0)});
  }
  if (!memory.make) {
    SC_ASSIGN_OR_RETURN(memory_, ops->AllocateKv(bytes));
  } else if (std::optional<kernels::Buffer> found = memory.find(bytes)) {
    memory_ = *std::move(found);
  } else {
    SC_ASSIGN_OR_RETURN(memory_, memory.make(bytes));
  }
  starts_ = std::move(starts);
  return absl::OkStatus();
}

kernels::KvLayer KvCache::layer(int32_t i) const {
  SC_CHECK(static_cast<size_t>(i) < starts_.size());
  const int32_t source = layers_[static_cast<size_t>(i)].kv_source;
  if (source >= 0) return layer(source - first_layer_);
  const Layer& start = starts_[static_cast<size_t>(i)];
  auto* const memory = memory_.As<unsigned char>();
  const bool has_v = NArrays(layers_[static_cast<size_t>(i)]) > 1;
  return {memory + start.k, has_v ? memory + start.v : nullptr, dtype_};
}

}  // namespace stagecoach::worker
