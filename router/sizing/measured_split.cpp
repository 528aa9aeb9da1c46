#include "router/sizing/measured_split.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "router/sizing/layer_split.h"

namespace stagecoach::router {
namespace {

// Between two numbers of sequences that are tried.
constexpr double kFewer = 0.9;

// Rows of a step while every stage works on a microbatch.
int32_t RowsOf(int32_t n_sequences, size_t n_stages) {
  return (n_sequences + static_cast<int32_t>(n_stages) - 1) / static_cast<int32_t>(n_stages);
}

class Stages {
 public:
  Stages(const ModelSpec& spec, std::span<const LayerOnDevice> devices, const SplitDemand& demand)
      : devices_(devices),
        demand_(demand),
        weights_before_(CostBefore(spec)),
        measured_(LayerCost(spec, spec.layers[demand.measured_layer])),
        logits_(LogitsCost(spec)),
        table_(static_cast<double>(spec.vocab_size) * spec.embed_size),
        keys_before_(1, 0.0) {
    for (const LayerSpec& layer : spec.layers) {
      const int32_t window = spec.kv_groups[layer.kv_group].window.size;
      const int32_t n_seen =
          window == 0 ? demand.sequence_tokens : std::min(window, demand.sequence_tokens);
      const int32_t n_keys = layer.has_attention() && layer.kv_source < 0 ? n_seen : 0;
      keys_before_.push_back(keys_before_.back() + n_keys);
    }
  }

  double Seconds(int32_t stage, const LayerRange& range, int32_t n_rows) const {
    const LayerOnDevice& device = devices_[stage];
    const double part =
        device.many_rows > 1 ? std::min(1.0, (n_rows - 1.0) / (device.many_rows - 1.0)) : 0;
    const double seconds = device.one_row_s + part * (device.many_rows_s - device.one_row_s);
    return (Weights(range) + (IsLast(stage) ? logits_ : 0)) / measured_ * seconds;
  }

  // The sequences that the stage has memory for, at most as many as are wanted; 0 if not even the
  // weights fit.
  int32_t NSequences(int32_t stage, const LayerRange& range) const {
    const LayerOnDevice& device = devices_[stage];
    double left = static_cast<double>(device.memory_bytes);
    if (!device.kv_is_fixed) {
      const double tables = table_ * ((stage == 0 ? 1 : 0) + (IsLast(stage) ? 1 : 0));
      left -= (Weights(range) + tables) / measured_ * static_cast<double>(device.weights_bytes);
    }
    const double keys = keys_before_[range.first + range.count] - keys_before_[range.first];
    const double n = left / (keys * static_cast<double>(device.kv_bytes_a_token));
    return static_cast<int32_t>(std::clamp(n, 0.0, static_cast<double>(demand_.max_sequences)));
  }

  MeasuredSplit Judge(std::vector<LayerRange> layers) const {
    MeasuredSplit split{.layers = std::move(layers), .n_sequences = demand_.max_sequences};
    for (size_t s = 0; s < split.layers.size(); ++s) {
      split.n_sequences =
          std::min(split.n_sequences, NSequences(static_cast<int32_t>(s), split.layers[s]));
    }
    const int32_t n_rows = RowsOf(split.n_sequences, devices_.size());
    for (size_t s = 0; s < split.layers.size(); ++s) {
      split.step_s =
          std::max(split.step_s, Seconds(static_cast<int32_t>(s), split.layers[s], n_rows));
    }
    return split;
  }

 private:
  double Weights(const LayerRange& range) const {
    return weights_before_[range.first + range.count] - weights_before_[range.first];
  }
  bool IsLast(int32_t stage) const { return stage + 1 == static_cast<int32_t>(devices_.size()); }

  const std::span<const LayerOnDevice> devices_;
  const SplitDemand demand_;
  const std::vector<double> weights_before_;
  const double measured_, logits_;   // weights, as LayerCost counts them
  const double table_;               // weights of the embedding, and of the output head
  std::vector<double> keys_before_;  // of one sequence in layers 0 to i-1
};

}  // namespace

double MeasuredSplit::rows_per_s() const {
  if (layers.empty() || n_sequences == 0 || step_s == 0) return 0;
  return RowsOf(n_sequences, layers.size()) / step_s;
}

MeasuredSplit JudgeSplit(const ModelSpec& spec, std::span<const LayerOnDevice> devices,
                         const SplitDemand& demand, std::vector<LayerRange> layers) {
  return Stages(spec, devices, demand).Judge(std::move(layers));
}

MeasuredSplit SplitByMeasure(const ModelSpec& spec, std::span<const LayerOnDevice> devices,
                             const SplitDemand& demand) {
  const Stages stages(spec, devices, demand);
  MeasuredSplit best;
  for (int32_t n = demand.max_sequences; n > 0; n = static_cast<int32_t>(n * kFewer)) {
    const int32_t n_rows = RowsOf(n, devices.size());
    const auto cost = [&](int32_t stage, const LayerRange& range) {
      if (!spec.CanBeginStage(range.first) || stages.NSequences(stage, range) < n) {
        return kCannotHold;
      }
      return stages.Seconds(stage, range, n_rows);
    };
    std::vector<LayerRange> layers =
        PartitionLayers(spec.n_layers(), static_cast<int32_t>(devices.size()), cost);
    if (layers.empty()) continue;
    MeasuredSplit split = stages.Judge(std::move(layers));
    if (split.rows_per_s() > best.rows_per_s()) best = std::move(split);
  }
  return best;
}

}  // namespace stagecoach::router
