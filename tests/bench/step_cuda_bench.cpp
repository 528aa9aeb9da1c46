// Measures a stage's steps on a GPU without a server: one stage has the model's whole shape with
// random weights, and the steps are queued one after the other, as if they were planned ahead.
//
//   step_cuda_bench MODEL_DIR [--device N] [--batch-invariant] [--left N] [--lasting SECONDS]
//                   [--quantize fp8|int8|int4] [--load SEQS,POSITION,TOKENS]...
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "common/check.h"
#include "common/model/model_spec.h"
#include "kernels/cuda/cuda_ops.h"
#include "tests/bench/power_meter.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {
namespace {

constexpr int32_t kMaxTokens = 8192, kMaxSequences = 256, kMaxLength = 32768;
constexpr int64_t kBlocks = 9000;

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// A step of n_seqs sequences with n_tokens rows each, starting at `position`.
struct Load {
  int32_t n_seqs, position, n_tokens;
  int n_steps;  // timed together
};

class Bench {
 public:
  Bench(kernels::Ops* ops, StageModel* model)
      : ops_(ops),
        model_(model),
        sampled_(*ops->AllocateHost(kMaxSequences * sizeof(kernels::SampledToken))) {}

  void Rehearse(const std::vector<Load>& loads) {
    SC_CHECK(ops_->Rehearse(true).ok());
    for (const Load& load : loads) Step(load, /*with_blocks=*/true);
    SC_CHECK(ops_->Rehearse(false).ok());
    SC_CHECK(model_->Prepare({}).ok());
  }

  void Time(const Load& load) {
    Step(load, /*with_blocks=*/true);
    SC_CHECK(ops_->Synchronize().ok());
    std::vector<double> ms;
    for (int run = 0; run < 3; ++run) {
      const double start = Now();
      Steps(load);
      ms.push_back((Now() - start) * 1e3 / load.n_steps);
    }
    std::sort(ms.begin(), ms.end());
    Print(load, ms[1], "");
  }

  // Runs long enough for the GPU's power limit to reduce the clock, as it does in a busy server.
  void TimeLasting(const Load& load, double seconds, const PowerMeter& meter) {
    Step(load, /*with_blocks=*/true);
    const double begin = Now();
    while (Now() < begin + seconds / 3) Steps(load);
    const double start = Now(), joules = meter.Joules();
    int n_steps = 0, n_reads = 0;
    double ghz = 0;
    for (; Now() < start + seconds; n_steps += load.n_steps, ++n_reads) {
      Steps(load);
      ghz += meter.ClockGhz();
    }
    const double took = Now() - start, taken = meter.Joules() - joules;
    Print(load, took * 1e3 / n_steps,
          fmt::format(", {:7.2f} J, {:3.0f} W, {:4.2f} GHz", taken / n_steps, taken / took,
                      ghz / n_reads));
  }

 private:
  static void Print(const Load& load, double ms, const std::string& more) {
    fmt::print("{:4} x {:4} rows from {:4}: {:8.3f} ms a step{}\n", load.n_seqs, load.n_tokens,
               load.position, ms, more);
    std::fflush(stdout);
  }

  void Steps(const Load& load) {
    for (int i = 0; i < load.n_steps; ++i) Step(load, /*with_blocks=*/false);
    SC_CHECK(ops_->Synchronize().ok());
  }

  // Runs the layers, the logits of each sequence's last row, and greedy sampling.
  void Step(const Load& load, bool with_blocks) {
    std::vector<kernels::StepSeq> seqs;
    std::vector<kernels::NewBlock> blocks;
    std::vector<int32_t> rows;
    std::vector<kernels::SampleRow> sample_rows;
    int64_t n_blocks = 0;
    for (int32_t s = 0; s < load.n_seqs; ++s) {
      seqs.push_back({s, load.position, load.n_tokens});
      rows.push_back((s + 1) * load.n_tokens - 1);
      sample_rows.push_back({.slot = s});
      const int32_t n_of_seq = (load.position + load.n_tokens) / kernels::kBlockTokens + 1;
      for (int32_t b = 0; with_blocks && b < n_of_seq; ++b) {
        // The block ids are scattered, as they are after a server has run for a while.
        blocks.push_back({0, s, b, static_cast<int32_t>(n_blocks++ * 7919 % kBlocks)});
      }
    }
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < load.n_seqs * load.n_tokens; ++i) {
      ids.push_back(static_cast<int32_t>(int64_t{i} * 7919 % model_->spec().vocab_size));
    }
    model_->Forward({.seqs = seqs,
                     .token_ids = ids,
                     .new_blocks = blocks,
                     .n_tokens = load.n_seqs * load.n_tokens},
                    model_->hidden_buffer(), rows);
    float* const logits = model_->Logits(model_->hidden_buffer(), rows);
    ops_->Sample({.logits = logits,
                  .vocab = model_->spec().vocab_size,
                  .rows = sample_rows,
                  .out = {sampled_.As<kernels::SampledToken>(), sample_rows.size()},
                  .sampled = model_->sampled_tokens()});
  }

  kernels::Ops* const ops_;
  StageModel* const model_;
  const kernels::Buffer sampled_;
};

int Fail(const absl::Status& status) {
  fmt::print(stderr, "error: {}\n", std::string(status.message()));
  return 1;
}

int Main(int argc, char** argv) {
  CLI::App app("What a stage's steps take on a GPU");
  kernels::CudaOptions options;
  std::string model_dir;
  app.add_option("MODEL_DIR", model_dir, "its config.json is enough")->required();
  app.add_option("--device", options.device, "GPU by CUDA's count")->capture_default_str();
  app.add_flag("--batch-invariant", options.batch_invariant, "rows do not depend on each other");
  int32_t n_left = 0;
  app.add_option("--left", n_left, "multiprocessors left to others, as a stage with links does");
  double lasting_s = 0;
  app.add_option("--lasting", lasting_s, "seconds that each load lasts, with its energy and clock");
  v1::Quantize quantize = v1::QUANTIZE_NONE;
  const std::map<std::string, v1::Quantize> codes = {
      {"fp8", v1::QUANTIZE_FP8}, {"int8", v1::QUANTIZE_INT8}, {"int4", v1::QUANTIZE_INT4}};
  app.add_option("--quantize", quantize, "the weights of linear layers: fp8, int8 or int4")
      ->transform(CLI::CheckedTransformer(codes));
  std::vector<std::tuple<int32_t, int32_t, int32_t>> asked;
  app.add_option("--load", asked, "SEQS,POSITION,TOKENS: so many rows of each, from there on")
      ->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  const auto spec = ReadModelSpec(model_dir);
  if (!spec.ok()) return Fail(spec.status());
  const auto ops = kernels::MakeCudaOps(options);
  if (!ops.ok()) return Fail(ops.status());
  if (n_left > 0) (*ops)->LeaveMultiprocessors(n_left);
  v1::LoadConfig config;
  config.set_load_format(v1::LOAD_FORMAT_DUMMY);
  config.set_quantize(quantize);
  config.set_max_batched_tokens(kMaxTokens);
  config.set_max_sequences(kMaxSequences);
  config.set_max_model_len(std::min(kMaxLength, spec->max_positions));
  const auto model = StageModel::Load({.model_dir = model_dir,
                                       .n_layers = spec->n_layers(),
                                       .is_first = true,
                                       .is_last = true,
                                       .config = config},
                                      ops->get(), {});
  if (!model.ok()) return Fail(model.status());
  const std::vector<uint64_t> n_blocks(spec->kv_groups.size(), kBlocks);
  if (const absl::Status status = (*model)->AllocateKv(n_blocks); !status.ok()) return Fail(status);

  Bench bench(ops->get(), model->get());
  std::vector<Load> loads = {
      {1, 255, 1, 20},   {1, 7900, 1, 20},  {8, 255, 1, 20}, {16, 255, 1, 20}, {64, 255, 1, 20},
      {128, 399, 1, 20}, {256, 399, 1, 10}, {1, 0, 8192, 2}, {2, 0, 4096, 2},  {64, 0, 128, 2}};
  if (!asked.empty()) loads.clear();
  for (const auto& [n_seqs, position, n_tokens] : asked) {
    loads.push_back({n_seqs, position, n_tokens, n_tokens == 1 ? 20 : 5});
  }
  bench.Rehearse(loads);
  if (lasting_s == 0) {
    for (const Load& load : loads) bench.Time(load);
    return 0;
  }
  const PowerMeter meter(options.device);
  for (const Load& load : loads) bench.TimeLasting(load, lasting_s, meter);
  return 0;
}

}  // namespace
}  // namespace stagecoach::worker

int main(int argc, char** argv) { return stagecoach::worker::Main(argc, argv); }
