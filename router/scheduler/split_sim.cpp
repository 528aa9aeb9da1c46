// Compares the layers that router/sizing/measured_split.h gives to uneven devices with the best
// split that a search finds: the real scheduler, stages in virtual time (pipeline_sim). Times of
// one layer are those of testing/step_cost.h. None of the figures is a measurement.
//
//   split_sim [--case NAME]... [--users 32] [--json]
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "common/kv_block.h"
#include "router/scheduler/testing/pipeline_simulator.h"
#include "router/sizing/measured_split.h"

namespace stagecoach::router {
namespace {

constexpr int32_t kPromptTokens = 512;
constexpr int32_t kOutputTokens = 256;

struct Device {
  double bandwidth = 1, flops = 1;  // relative to an H200
  double gib = 100;                 // for weights and KV cache
};

// Data sheets: bandwidth and dense bfloat16 FLOPs.
constexpr Device kH200 = {1, 1, 120};
constexpr Device kH100 = {3.35 / 4.8, 1, 68};
constexpr Device kL40S = {0.864 / 4.8, 362.0 / 989, 38};
constexpr Device kRtx4090 = {1.008 / 4.8, 165.0 / 989, 20};
constexpr Device kRtx3090 = {0.936 / 4.8, 71.0 / 989, 20};
// Its user has left 5 GiB.
constexpr Device kDesktopShare = {1.008 / 4.8, 165.0 / 989, 5};

struct Link {
  double hop_s = 40e-6;
  double bytes_per_s = 33e9;
};
constexpr Link kSlowLink = {200e-6, 0.5e9};

struct Case {
  std::string name;
  std::vector<Device> devices;
  Link link;
};

std::vector<Case> Cases() {
  return {{"h200+l40s", {kH200, kL40S}, {}},
          {"l40s+h200", {kL40S, kH200}, {}},
          {"h100+h200+h100", {kH100, kH200, kH100}, {}},
          {"4090+3090+4090", {kRtx4090, kRtx3090, kRtx4090}, {}},
          {"4090+desktop_share", {kRtx4090, kDesktopShare}, {}},
          {"4090+3090, slow link", {kRtx4090, kRtx3090}, kSlowLink},
          {"4090+3090+4090, slow links", {kRtx4090, kRtx3090, kRtx4090}, kSlowLink},
          {"5 stages, one l40s", {kH100, kH100, kL40S, kH100, kH100}, {}},
          {"6 stages, two 3090s", {kRtx4090, kRtx3090, kRtx4090, kRtx4090, kRtx3090, kRtx4090}, {}},
          {"7 equal stages", std::vector<Device>(7, kH100), {}}};
}

// The shape of testing/step_cost.h, Mistral-7B's.
ModelSpec Spec(const ModelShape& shape) {
  ModelSpec spec;
  spec.hidden_size = spec.embed_size = 4096;
  spec.n_heads = 32;
  spec.n_kv_heads = 8;
  spec.head_dim = 128;
  spec.intermediate_size = 14336;
  spec.vocab_size = 32768;
  spec.kv_groups = {{.window = 0}};
  spec.layers.resize(shape.n_layers);
  return spec;
}

class Search {
 public:
  Search(const Case& one, int32_t n_users) : case_(one), n_users_(n_users) {
    for (const Device& device : one.devices) {
      DeviceSpeed speed;
      speed.weight_bytes_per_s *= device.bandwidth;
      speed.kv_bytes_per_s *= device.bandwidth;
      speed.product_flops_per_s *= device.flops;
      speed.attention_flops_per_s *= device.flops;
      speed.hop_s = one.link.hop_s;
      speed.hop_s_a_row = 4096 * sizeof(float) / one.link.bytes_per_s;
      speeds_.push_back(speed);
    }
  }

  // The layers that the router would give each stage.
  std::vector<int32_t> Chosen() const {
    std::vector<LayerOnDevice> devices;
    for (size_t s = 0; s < speeds_.size(); ++s) {
      const StageCost layer(shape_, speeds_[s], 1, false);
      const auto seconds = [&](int32_t n_rows) {
        return layer.Seconds({.n_rows = n_rows, .n_sampled = 0});
      };
      devices.push_back({.one_row_s = seconds(1),
                         .many_rows_s = seconds(kManyRows),
                         .many_rows = kManyRows,
                         .weights_bytes = static_cast<uint64_t>(LayerBytes()),
                         .kv_bytes_a_token = static_cast<uint64_t>(shape_.kv_bytes),
                         .memory_bytes = static_cast<uint64_t>(Memory(s))});
    }
    const SplitDemand demand = {.measured_layer = shape_.n_layers / 2,
                                .max_sequences = n_users_,
                                .sequence_tokens = kPromptTokens + kOutputTokens};
    std::vector<int32_t> counts;
    for (const LayerRange& range : SplitByMeasure(Spec(shape_), devices, demand).layers) {
      counts.push_back(range.count);
    }
    return counts;
  }

  // Output tokens per second; 0: the layers do not fit, or no sequence beside them.
  double Rate(const std::vector<int32_t>& counts) { return Run(counts).rate; }
  double LeastBusy(const std::vector<int32_t>& counts) { return Run(counts).least_busy; }

  // The best split that moves of one layer between two stages lead to from any of `starts`; with up
  // to three stages, of all splits.
  std::vector<int32_t> Best(const std::vector<std::vector<int32_t>>& starts) {
    std::vector<int32_t> best = starts.front();
    const auto consider = [&](const std::vector<int32_t>& counts) {
      if (Rate(counts) <= Rate(best)) return false;
      best = counts;
      return true;
    };
    if (speeds_.size() <= 3) {
      for (int32_t a = 1; a < shape_.n_layers; ++a) {
        const int32_t rest = shape_.n_layers - a;
        if (speeds_.size() == 2) consider({a, rest});
        for (int32_t b = 1; speeds_.size() == 3 && b < rest; ++b) consider({a, b, rest - b});
      }
      return best;
    }
    for (const std::vector<int32_t>& start : starts) {
      std::vector<int32_t> here = start;
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t from = 0; from < here.size(); ++from) {
          for (size_t to = 0; to < here.size(); ++to) {
            std::vector<int32_t> next = here;
            if (from == to || --next[from] == 0) continue;
            ++next[to];
            if (Rate(next) <= Rate(here)) continue;
            here = next;
            moved = true;
          }
        }
      }
      consider(here);
    }
    return best;
  }

  std::vector<int32_t> Even() const {
    std::vector<int32_t> counts;
    for (const SimulatedStage& stage :
         EvenStages(shape_, DeviceSpeed(), static_cast<int32_t>(speeds_.size()))) {
      counts.push_back(stage.n_layers);
    }
    return counts;
  }

 private:
  static constexpr int32_t kManyRows = 8192;

  struct Outcome {
    double rate = 0;
    double least_busy = 0;
  };

  double LayerBytes() const { return shape_.layer_parameters * shape_.bytes_a_parameter; }
  double Memory(size_t stage) const { return case_.devices[stage].gib * (1 << 30); }

  const Outcome& Run(const std::vector<int32_t>& counts) {
    const auto [found, is_new] = outcomes_.try_emplace(counts);
    if (is_new) found->second = Simulated(counts);
    return found->second;
  }

  Outcome Simulated(const std::vector<int32_t>& counts) const {
    std::vector<SimulatedStage> stages;
    double n_tokens = 1e9;
    for (size_t s = 0; s < counts.size(); ++s) {
      stages.push_back({.speed = speeds_[s], .n_layers = counts[s]});
      const double tables = (s == 0 ? 1 : 0) + (s + 1 == counts.size() ? 1 : 0);
      const double weights =
          counts[s] * LayerBytes() + tables * shape_.head_parameters * shape_.bytes_a_parameter;
      n_tokens = std::min(n_tokens, (Memory(s) - weights) / (counts[s] * shape_.kv_bytes));
    }
    SchedulerConfig config;
    config.n_microbatches = static_cast<int32_t>(counts.size());
    config.max_sequences = n_users_;
    config.max_batched_tokens = config.max_prefill_chunk = kManyRows;
    config.max_model_len = kPromptTokens + kOutputTokens;
    config.max_waiting = 100'000;
    config.prefix_cache = false;
    if (n_tokens < config.max_model_len) return {};
    config.kv_groups = {
        {.window = 0, .n_blocks = static_cast<uint64_t>(n_tokens / kKvBlockTokens)}};
    std::vector<SimulatedRequest> requests(
        static_cast<size_t>(8 * n_users_),
        {.arrival_s = 0, .n_prompt = kPromptTokens, .n_output = kOutputTokens});
    for (size_t i = n_users_; i < requests.size(); ++i) requests[i].closed_loop = true;
    const auto run = Simulate(config, stages, shape_, requests);
    if (!run.ok()) return {};
    return {.rate = static_cast<double>(run->n_output_tokens) / run->seconds,
            .least_busy = *std::ranges::min_element(run->busy_share)};
  }

  const ModelShape shape_;
  const Case& case_;
  const int32_t n_users_;
  std::vector<DeviceSpeed> speeds_;
  std::map<std::vector<int32_t>, Outcome> outcomes_;
};

int Main(int argc, char** argv) {
  std::vector<std::string> names;
  int32_t n_users = 32;
  bool json = false;
  CLI::App app("Compares layer splits for uneven devices; none of its numbers is a measurement");
  app.add_option("--case", names, "Only cases with this text in their names");
  app.add_option("--users", n_users)->check(CLI::Range(1, 1024));
  app.add_flag("--json", json, "Print JSON lines");
  CLI11_PARSE(app, argc, argv);
  for (const Case& one : Cases()) {
    const auto is_named = [&](const std::string& part) {
      return one.name.find(part) != std::string::npos;
    };
    if (!names.empty() && std::none_of(names.begin(), names.end(), is_named)) continue;
    Search search(one, n_users);
    const std::vector<int32_t> chosen = search.Chosen();
    const std::vector<int32_t> even = search.Even();
    const std::vector<int32_t> best = search.Best({chosen, even});
    const double rate = search.Rate(chosen);
    fmt::print(
        fmt::runtime(json ? "{{\"name\": \"layer_split/{}\", \"value\": {:.0f}, \"unit\": "
                            "\"simulated tok/s\", \"layers\": [{}], \"least_busy\": {:.2f}, "
                            "\"reference\": \"the best split found, {}\", \"ratio\": {:.3f}, "
                            "\"even\": {:.0f}}}\n"
                          : "{:<28} {:>7.0f} tok/s with {:<16} least busy {:.2f}  best {:<16} "
                            "ratio {:.3f}  even {:>7.0f}\n"),
        one.name, rate, fmt::format("{}", fmt::join(chosen, ",")), search.LeastBusy(chosen),
        fmt::format("{}", fmt::join(best, ",")), rate / search.Rate(best), search.Rate(even));
  }
  return 0;
}

}  // namespace
}  // namespace stagecoach::router

int main(int argc, char** argv) { return stagecoach::router::Main(argc, argv); }
