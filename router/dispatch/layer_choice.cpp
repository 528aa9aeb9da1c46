#include "router/dispatch/layer_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "common/kv_block.h"

namespace stagecoach::router {
namespace {

// KV cache of one sequence for which memory is compared.
constexpr int32_t kSequenceTokens = 2048;
// A measured split must promise this much more. Measurements differ by a few percent from start to
// start, and equal devices should get the same layers each time.
constexpr double kClearlyMore = 1.05;

// A layer in the middle that can be a stage alone.
int32_t MeasuredLayer(const ModelSpec& spec) {
  int32_t layer = spec.n_layers() / 2;
  while (layer > 0 && !spec.CanBeginStage(layer + 1)) --layer;
  return layer;
}

std::string Counts(const std::vector<LayerRange>& layers) {
  std::vector<int32_t> counts;
  counts.reserve(layers.size());
  for (const LayerRange& range : layers) counts.push_back(range.count);
  return fmt::format("{}", fmt::join(counts, ","));
}

}  // namespace

std::optional<std::vector<LayerRange>> HeldLayers(const ModelSpec& spec, Descriptions workers,
                                                  const std::string& holder) {
  std::vector<LayerRange> layers;
  int32_t next = 0;
  for (const v1::DescribeResponse& worker : workers) {
    const LayerRange range = {.first = static_cast<int32_t>(worker.layers().first()),
                              .count = static_cast<int32_t>(worker.layers().count())};
    if (worker.lease().holder() != holder || range.count < 1 || range.first != next) {
      return std::nullopt;
    }
    next += range.count;
    layers.push_back(range);
  }
  if (next != spec.n_layers()) return std::nullopt;
  return layers;
}

bool MustMeasure(MeasureStages flag, Descriptions workers) {
  if (flag != MeasureStages::kAuto) return flag == MeasureStages::kOn;
  const auto kind = [](const v1::DescribeResponse& worker) {
    return std::tuple(worker.device(), worker.device_name(), worker.n_threads(),
                      worker.memory_total_bytes());
  };
  return std::any_of(workers.begin(), workers.end(),
                     [&](const auto& worker) { return kind(worker) != kind(workers.front()); });
}

v1::LoadRequest MeasuringLoad(const ModelSpec& spec, v1::LoadRequest load) {
  load.set_stage(1);
  load.set_n_stages(3);
  load.set_first_layer(MeasuredLayer(spec));
  load.set_n_layers(1);
  load.clear_token_table();
  load.set_times_one_row(true);
  v1::LoadConfig& config = *load.mutable_config();
  config.set_load_format(v1::LOAD_FORMAT_DUMMY);
  config.clear_adapter_dir();
  config.clear_kv_store();
  config.clear_disk_kv();
  config.clear_host_kv_bytes();
  return load;
}

LayerOnDevice Measured(const v1::MemoryReport& report, const v1::DescribeResponse& worker,
                       const v1::LoadRequest& load) {
  const uint64_t block_bytes =
      std::reduce(report.kv_block_bytes().begin(), report.kv_block_bytes().end(), uint64_t{0});
  LayerOnDevice device{.one_row_s = report.one_row_ms() / 1e3,
                       .many_rows_s = report.largest_step_ms() / 1e3,
                       .many_rows = load.config().max_batched_tokens(),
                       .weights_bytes = report.weights_bytes(),
                       .kv_bytes_a_token = block_bytes / kKvBlockTokens,
                       .kv_is_fixed = load.config().kv_memory_bytes() > 0};
  if (device.kv_is_fixed) {
    device.memory_bytes = load.config().kv_memory_bytes();
  } else if (report.device_bytes() > 0) {
    device.memory_bytes = report.weights_bytes() + report.kv_bytes();
  } else {
    // On a host, the report's KV cache has no more memory than one layer can use.
    device.memory_bytes = worker.memory_available_bytes() / std::max(1u, load.n_local_workers());
  }
  return device;
}

std::vector<LayerRange> ChooseMeasured(const ModelSpec& spec,
                                       std::span<const LayerOnDevice> devices,
                                       const v1::LoadConfig& config, std::vector<LayerRange> even) {
  const SplitDemand demand = {.measured_layer = MeasuredLayer(spec),
                              .max_sequences = config.max_sequences(),
                              .sequence_tokens = std::min(config.max_model_len(), kSequenceTokens)};
  for (size_t s = 0; s < devices.size(); ++s) {
    spdlog::info("stage {}: a layer takes {:.3f} ms for one row and {:.3f} ms for {} rows", s,
                 devices[s].one_row_s * 1e3, devices[s].many_rows_s * 1e3, devices[s].many_rows);
  }
  MeasuredSplit best = SplitByMeasure(spec, devices, demand);
  const MeasuredSplit equal = JudgeSplit(spec, devices, demand, std::move(even));
  if (best.rows_per_s() <= kClearlyMore * equal.rows_per_s()) return equal.layers;
  spdlog::info(
      "--layer-split {} fits the devices: {} sequences of {} tokens, {:.0f} rows per second; {} "
      "would have {} and {:.0f}",
      Counts(best.layers), best.n_sequences, demand.sequence_tokens, best.rows_per_s(),
      Counts(equal.layers), equal.n_sequences, equal.rows_per_s());
  return std::move(best.layers);
}

}  // namespace stagecoach::router
