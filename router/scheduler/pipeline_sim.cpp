// Simulates the scheduler's policies under a load: the real scheduler plans, every plan is checked,
// and stages take the time that testing/step_cost.h gives. The figures compare policies; they are
// not measurements.
//
//   pipeline_sim [--stages 1,2,4] [--load NAME]... [--max-sequences N] [--device gpu|cpu] [--dump]
//                [--max-batched-tokens N] [--microbatches N] [--break-even-rows N] [--router-us US]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "router/scheduler/prefix_tree.h"
#include "router/scheduler/testing/pipeline_simulator.h"
#include "router/sizing/step_limits.h"
#include "stagecoach/v1/load.pb.h"

namespace stagecoach::router {
namespace {

struct Load {
  std::string name;
  std::vector<SimulatedRequest> requests;
  int32_t max_sequences = 256;
  // Fraction of the KV that all sequences need together; 0: as much as H200s have.
  double kv_share = 0;
};

std::vector<SimulatedRequest> AtOnce(int n, int32_t n_prompt, int32_t n_output) {
  return std::vector<SimulatedRequest>(
      static_cast<size_t>(n), {.arrival_s = 0, .n_prompt = n_prompt, .n_output = n_output});
}

std::vector<SimulatedRequest> AtATime(size_t n_at_a_time, int n, int32_t n_prompt,
                                      int32_t n_output) {
  auto requests = AtOnce(n, n_prompt, n_output);
  for (size_t i = n_at_a_time; i < requests.size(); ++i) requests[i].closed_loop = true;
  return requests;
}

// Running answers, and long prompts that arrive between them at random times.
std::vector<SimulatedRequest> Mix(double prompts_per_s) {
  auto requests = AtOnce(48, 128, 2000);
  std::mt19937 random(1);
  std::exponential_distribution<double> gap_s(prompts_per_s);
  for (double at_s = gap_s(random); at_s < 10; at_s += gap_s(random)) {
    requests.push_back({.arrival_s = at_s, .n_prompt = 6000, .n_output = 100});
  }
  return requests;
}

// Requests of random lengths at random times.
std::vector<SimulatedRequest> Traffic(double requests_per_s) {
  std::vector<SimulatedRequest> requests;
  std::mt19937 random(2);
  std::exponential_distribution<double> gap_s(requests_per_s);
  std::lognormal_distribution<double> n_prompt(6, 1), n_output(5, 0.8);
  for (double at_s = 0; at_s < 20; at_s += gap_s(random)) {
    requests.push_back(
        {.arrival_s = at_s,
         .n_prompt = static_cast<int32_t>(std::clamp(n_prompt(random), 8.0, 8000.0)),
         .n_output = static_cast<int32_t>(std::clamp(n_output(random), 4.0, 2000.0))});
  }
  return requests;
}

std::vector<Load> Loads() {
  return {
      {"one_128/256", AtOnce(1, 128, 256)},
      {"one_512/1", AtOnce(1, 512, 1)},
      {"one_2048/1", AtOnce(1, 2048, 1)},
      {"one_8192/1", AtOnce(1, 8192, 1)},
      {"64x4096/1", AtOnce(64, 4096, 1)},
      {"64_at_once_128/128", AtOnce(64, 128, 128)},
      {"64_at_a_time_128/256", AtATime(64, 512, 128, 256)},
      {"256x128/512", AtOnce(256, 128, 512)},
      {"1000x1024/256", AtOnce(1000, 1024, 256)},
      {"1000x1024/256_slots_1024", AtOnce(1000, 1024, 256), 1024},
      {"48_running+2_prompts_a_s", Mix(2)},
      {"48_running+8_prompts_a_s", Mix(8)},
      {"traffic_25_a_s", Traffic(25)},
      {"traffic_60_a_s", Traffic(60)},
      {"256x512/512_third_of_kv", AtOnce(256, 512, 512), 256, 1.0 / 3},
  };
}

struct Flags {
  std::vector<int32_t> stages = {1, 2, 4};
  std::vector<std::string> loads;
  std::string device = "gpu";
  int32_t max_sequences = 0;
  int32_t max_batched_tokens = 0;
  int32_t microbatches = 0;
  int32_t break_even_rows = 0;
  double router_us = 0;
  bool dump = false;
};

// The capacity of H200s (900,240 tokens were measured with one stage), or the load's kv_share.
uint64_t NBlocks(const Load& load, int32_t n_stages) {
  if (load.kv_share == 0) return 62'750 * static_cast<uint64_t>(n_stages) - 6'500;
  double n_tokens = 0;
  for (const SimulatedRequest& request : load.requests)
    n_tokens += request.n_prompt + request.n_output;
  return static_cast<uint64_t>(n_tokens * load.kv_share / kBlockTokens);
}

SchedulerConfig MakeConfig(const Flags& flags, const Load& load, int32_t n_stages) {
  SchedulerConfig config;
  config.n_microbatches = flags.microbatches > 0 ? flags.microbatches : n_stages;
  config.max_sequences = flags.max_sequences > 0 ? flags.max_sequences : load.max_sequences;
  v1::LoadConfig limits;
  limits.set_max_batched_tokens(flags.max_batched_tokens);
  limits = WithDefaults(std::move(limits), flags.device == "gpu", static_cast<size_t>(n_stages));
  config.max_batched_tokens = limits.max_batched_tokens();
  config.max_prefill_chunk = limits.max_prefill_chunk();
  config.break_even_rows = flags.break_even_rows > 0 ? flags.break_even_rows
                           : flags.device == "cpu"   ? kCpuBreakEvenRows
                                                     : kGpuBreakEvenRows;
  config.max_model_len = 8448;
  config.max_waiting = 100'000;
  config.prefix_cache = false;  // the prompts all look alike
  config.kv_groups = {{.window = 0, .n_blocks = NBlocks(load, n_stages)}};
  return config;
}

// Speed of CPUs: measured with a Gemma of 270 million parameters on two cores
// (tests/bench/results/cpu_peer.jsonl, bf16); the hop is a guess.
constexpr DeviceSpeed kCpuSpeed = {.weight_bytes_per_s = 25e9,
                                   .kv_bytes_per_s = 25e9,
                                   .product_flops_per_s = 118e9,
                                   .attention_flops_per_s = 60e9,
                                   .hop_s = 0.3e-3,
                                   .hop_s_a_row = 20e-6,
                                   .router_s = 0.3e-3};

DeviceSpeed SpeedOf(const Flags& flags) {
  DeviceSpeed speed = flags.device == "cpu" ? kCpuSpeed : DeviceSpeed();
  if (flags.router_us > 0) speed.router_s = flags.router_us * 1e-6;
  return speed;
}

double Percentile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(fraction * static_cast<double>(values.size() - 1))];
}

void Dump(const SimulatedRun& run) {
  fmt::print("planned_ms begins_ms result_ms stage_ms rows prefill sampled\n");
  for (const SimulatedStep& step : run.steps) {
    fmt::print("{:.2f} {:.2f} {:.2f} {:.3f} {} {} {}\n", step.planned_s * 1e3,
               step.first_stage_s * 1e3, step.result_s * 1e3, step.stage_s * 1e3, step.work.n_rows,
               step.work.n_prefill, step.work.n_sampled);
  }
}

void Print(const Load& load, int32_t n_stages, const SimulatedRun& run) {
  const auto n_steps = static_cast<double>(run.steps.size());
  double n_rows = 0, n_prefill = 0;
  for (const SimulatedStep& step : run.steps) {
    n_rows += step.work.n_rows;
    n_prefill += step.work.n_prefill;
  }
  std::string busy;
  for (double share : run.busy_share) busy += fmt::format(" {:.2f}", share);
  fmt::print(
      "{:<26} {:>6} {:>9.3f} {:>8.0f} {:>8.0f} {:>8.1f} {:>8.1f} {:>7.2f} {:>7.2f} {:>7.2f} "
      "{:>6.0f} {:>6.1f} {:>7.1f} {:>5} {:>8.3f}{}\n",
      load.name, n_stages, run.seconds, static_cast<double>(run.n_output_tokens) / run.seconds,
      static_cast<double>(run.n_prompt_tokens) / run.seconds,
      Percentile(run.first_token_s, 0.5) * 1e3, Percentile(run.first_token_s, 0.99) * 1e3,
      Percentile(run.between_tokens_s, 0.5) * 1e3, Percentile(run.between_tokens_s, 0.99) * 1e3,
      Percentile(run.between_tokens_s, 1) * 1e3, n_steps, n_rows / n_steps, n_prefill / n_steps,
      run.n_preemptions, 1 - *std::ranges::max_element(run.busy_share), busy);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Simulates the scheduler on a pipeline; none of its numbers is a measurement");
  app.add_option("--stages", flags.stages)->delimiter(',')->check(CLI::Range(1, 32));
  app.add_option("--load", flags.loads,
                 "Only loads with this text in their names. Can be given several times");
  app.add_option("--device", flags.device)->check(CLI::IsMember({"gpu", "cpu"}));
  app.add_option("--max-sequences", flags.max_sequences);
  app.add_option("--max-batched-tokens", flags.max_batched_tokens);
  app.add_option("--microbatches", flags.microbatches);
  app.add_option("--break-even-rows", flags.break_even_rows);
  app.add_option("--router-us", flags.router_us,
                 "One-way latency between router and stages in microseconds");
  app.add_flag("--dump", flags.dump, "Print one line per step");
  CLI11_PARSE(app, argc, argv);
  fmt::print(
      "simulated                  stages   seconds   out/s    in/s  ttft_p50 ttft_p99 itl_p50 "
      "itl_p99 itl_max  steps   rows prefill  preempted bubbles busy\n");
  for (const Load& load : Loads()) {
    const auto is_named = [&](const std::string& part) {
      return load.name.find(part) != std::string::npos;
    };
    if (!flags.loads.empty() && std::none_of(flags.loads.begin(), flags.loads.end(), is_named)) {
      continue;
    }
    for (int32_t n_stages : flags.stages) {
      const auto run =
          Simulate(MakeConfig(flags, load, n_stages),
                   EvenStages(ModelShape(), SpeedOf(flags), n_stages), ModelShape(), load.requests);
      if (!run.ok()) {
        fmt::print(stderr, "error: {}\n", std::string(run.status().message()));
        return 1;
      }
      if (flags.dump) Dump(*run);
      Print(load, n_stages, *run);
    }
  }
  return 0;
}

}  // namespace
}  // namespace stagecoach::router

int main(int argc, char** argv) { return stagecoach::router::Main(argc, argv); }
