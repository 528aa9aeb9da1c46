#include "router/sizing/layer_split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace stagecoach::router {
namespace {

// In mixed traffic, about every second row is a prompt row that needs no logits.
constexpr double kRowsThatSample = 0.5;

// The number of weights in one layer that a step reads and multiplies. A full batch reads all
// experts.
double LayerCost(const ModelSpec& spec, const LayerSpec& layer) {
  const double hidden = spec.hidden_size;
  const double attention = hidden * spec.head_dim * (2.0 * spec.n_heads + 2.0 * spec.n_kv_heads);
  const double mlp = layer.has_experts
                         ? 3.0 * hidden * spec.experts.intermediate_size * spec.experts.n_experts
                         : hidden * spec.intermediate_size * (spec.gated_mlp ? 3 : 2);
  return attention + mlp;
}

double LogitsCost(const ModelSpec& spec) {
  return kRowsThatSample * spec.hidden_size * spec.vocab_size;
}

}  // namespace

absl::StatusOr<std::vector<LayerRange>> BalanceLayers(const ModelSpec& spec, int32_t n_stages) {
  const int32_t n_layers = spec.n_layers();
  if (n_stages > n_layers) {
    return absl::InvalidArgumentError(fmt::format(
        "{} stages for a model of {} layers: use at most one stage per layer", n_stages, n_layers));
  }
  std::vector<double> cost_before(1, 0.0);  // sum of the layers before each layer
  for (const LayerSpec& layer : spec.layers) {
    cost_before.push_back(cost_before.back() + LayerCost(spec, layer));
  }
  const double logits = LogitsCost(spec);
  constexpr double kNone = std::numeric_limits<double>::infinity();
  // The first pass minimizes the maximum; the second finds the most even split within it. The two
  // goals together have no optimal substructure.
  double limit = kNone;
  std::vector<std::vector<int32_t>> begin_of;
  for (const bool even : {false, true}) {
    // best[s][l]: stages 0..s hold layers 0..l-1.
    std::vector<std::vector<double>> best(n_stages, std::vector<double>(n_layers + 1, kNone));
    begin_of.assign(n_stages, std::vector<int32_t>(n_layers + 1, 0));
    for (int32_t s = 0; s < n_stages; ++s) {
      for (int32_t l = s + 1; l <= n_layers; ++l) {
        const double extra = s == n_stages - 1 ? logits : 0;
        for (int32_t begin = s == 0 ? l - 1 : s; begin < l; ++begin) {
          const int32_t first = s == 0 ? 0 : begin;
          const double cost = cost_before[l] - cost_before[first] + extra;
          if (cost > limit) continue;
          const double before = s == 0 ? 0 : best[s - 1][first];
          const double total = even ? before + cost * cost : std::max(before, cost);
          if (total < best[s][l]) {
            best[s][l] = total;
            begin_of[s][l] = first;
          }
        }
      }
    }
    if (!even) limit = best[n_stages - 1][n_layers];
  }
  std::vector<LayerRange> ranges(n_stages);
  int32_t end = n_layers;
  for (int32_t s = n_stages - 1; s >= 0; --s) {
    ranges[s] = {begin_of[s][end], end - begin_of[s][end]};
    end = ranges[s].first;
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
