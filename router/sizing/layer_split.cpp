#include "router/sizing/layer_split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stagecoach::router {
namespace {

// In mixed traffic, about every second row is a prompt row that needs no logits.
constexpr double kRowsThatSample = 0.5;

}  // namespace

double LayerCost(const ModelSpec& spec, const LayerSpec& layer) {
  const double hidden = spec.hidden_size;
  double attention = hidden * spec.head_dim *
                     ((spec.attn_gate ? 3.0 : 2.0) * spec.n_heads + 2.0 * spec.n_kv_heads);
  if (layer.is_recurrent) {
    const RecurrentShape& shape = spec.recurrent->shape;
    attention = hidden * (double{1} * shape.projected_width() + shape.values_width());
  }
  const double experts = 1.0 * spec.experts.intermediate_size * spec.experts.n_experts +
                         spec.shared_expert.intermediate_size;
  const double mlp = layer.has_experts ? 3.0 * hidden * experts
                                       : hidden * spec.intermediate_size * (spec.gated_mlp ? 3 : 2);
  return attention + mlp;
}

double LogitsCost(const ModelSpec& spec) {
  if (spec.pooling) return 0;
  return kRowsThatSample * spec.hidden_size * spec.vocab_size;
}

std::vector<double> CostBefore(const ModelSpec& spec) {
  std::vector<double> before(1, 0.0);
  for (const LayerSpec& layer : spec.layers) {
    before.push_back(before.back() + LayerCost(spec, layer));
  }
  return before;
}

absl::StatusOr<std::vector<LayerRange>> BalanceLayers(const ModelSpec& spec, int32_t n_stages) {
  const int32_t n_layers = spec.n_layers();
  if (n_stages > n_layers) {
    return absl::InvalidArgumentError(fmt::format(
        "{} stages for a model of {} layers: use at most one stage per layer", n_stages, n_layers));
  }
  const std::vector<double> before = CostBefore(spec);
  return PartitionLayers(n_layers, n_stages, [&](int32_t stage, const LayerRange& range) {
    const double logits = stage + 1 == n_stages ? LogitsCost(spec) : 0;
    return before[range.first + range.count] - before[range.first] + logits;
  });
}

absl::StatusOr<std::vector<LayerRange>> SplitLayers(std::span<const uint32_t> layers_by_stage,
                                                    const ModelSpec& spec, int32_t n_stages) {
  const std::string given = fmt::format("--layer-split {}", fmt::join(layers_by_stage, ","));
  if (layers_by_stage.size() != static_cast<size_t>(n_stages)) {
    return absl::InvalidArgumentError(fmt::format("{} names {} stages, but there are {}", given,
                                                  layers_by_stage.size(), n_stages));
  }
  std::vector<LayerRange> ranges;
  uint64_t n_layers = 0;
  for (const uint32_t count : layers_by_stage) {
    if (count == 0) return absl::InvalidArgumentError(given + ": a stage needs at least one layer");
    ranges.push_back({static_cast<int32_t>(n_layers), static_cast<int32_t>(count)});
    n_layers += count;
  }
  if (n_layers != static_cast<uint64_t>(spec.n_layers())) {
    return absl::InvalidArgumentError(fmt::format("{} sums to {}, but the model has {} layers",
                                                  given, n_layers, spec.n_layers()));
  }
  return ranges;
}

}  // namespace stagecoach::router
