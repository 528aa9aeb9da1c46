#include "router/sizing/layer_split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace stagecoach::router {
namespace {

// In mixed traffic, about every second row is a prompt row that needs no logits.
constexpr double kRowsThatSample = 0.5;

// The last layer with which a stage may begin.
int32_t LastBeginning(const ModelSpec& spec) {
  int32_t layer = spec.n_layers() - 1;
  while (!spec.CanBeginStage(layer)) --layer;
  return layer;
}

}  // namespace

double LayerCost(const ModelSpec& spec, const LayerSpec& layer) {
  return spec.WeightsOfEveryRow(layer) + (layer.has_experts ? spec.WeightsOfExperts() : 0);
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
  std::vector<LayerRange> ranges =
      PartitionLayers(n_layers, n_stages, [&](int32_t stage, const LayerRange& range) {
        if (!spec.CanBeginStage(range.first)) return kCannotHold;
        const double logits = stage + 1 == n_stages ? LogitsCost(spec) : 0;
        return before[range.first + range.count] - before[range.first] + logits;
      });
  if (ranges.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{} stages for a model of {} layers, of which {} share keys and values and so "
                    "must be on one stage: use at most {} stages",
                    n_stages, n_layers, n_layers - LastBeginning(spec), LastBeginning(spec) + 1));
  }
  return ranges;
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
    const auto n_before = static_cast<int32_t>(std::min<uint64_t>(n_layers, spec.n_layers()));
    if (!spec.CanBeginStage(n_before)) {
      return absl::InvalidArgumentError(
          fmt::format("{}: a stage cannot begin with layer {}, because layers {} to {} share keys "
                      "and values and so must be on one stage",
                      given, n_before, LastBeginning(spec), spec.n_layers() - 1));
    }
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
