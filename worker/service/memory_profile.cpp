#include "worker/service/memory_profile.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <numeric>
#include <vector>

#include "common/host_memory.h"
#include "common/kv_block.h"
#include "common/laps.h"
#include "common/size.h"
#include "common/status.h"
#include "worker/model/decode_sizes.h"
#include "worker/model/link_needs.h"

namespace stagecoach::worker {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr double kDefaultShare = 0.4;  // of the free memory, for all local workers together
constexpr double kDefaultFraction = 0.9;

// A step of `n_tokens` rows, or fewer if that many are impossible, spread evenly over `n_seqs`
// sequences, or more if necessary. Each sequence starts at position 0.
class LargestStep {
 public:
  LargestStep(int32_t n_tokens, int32_t n_seqs, int32_t n_groups, const v1::LoadConfig& config) {
    const int32_t most = config.max_model_len();
    n_seqs = std::min(std::max(n_seqs, (n_tokens + most - 1) / most), config.max_sequences());
    n_tokens = static_cast<int32_t>(std::min<int64_t>(n_tokens, int64_t{n_seqs} * most));
    token_ids_.assign(static_cast<size_t>(n_tokens), 0);
    int32_t begin = 0;
    for (int32_t s = 0; s < n_seqs; ++s) {
      const int32_t end = static_cast<int32_t>(int64_t{n_tokens} * (s + 1) / n_seqs);
      seqs_.push_back({.slot = s, .position = 0, .n_tokens = end - begin});
      for (int32_t index = 0; index * kernels::kBlockTokens < end - begin; ++index) {
        for (int32_t group = 0; group < n_groups; ++group) {
          new_blocks_.push_back({group, s, index, n_blocks_});
        }
        ++n_blocks_;
      }
      begin = end;
    }
  }

  int32_t n_blocks() const { return n_blocks_; }
  kernels::StepBatch batch() const {
    return {.seqs = seqs_,
            .token_ids = token_ids_,
            .new_blocks = new_blocks_,
            .n_tokens = static_cast<int32_t>(token_ids_.size())};
  }

 private:
  std::vector<int32_t> token_ids_;
  std::vector<kernels::StepSeq> seqs_;
  std::vector<kernels::NewBlock> new_blocks_;
  int32_t n_blocks_ = 0;
};

std::vector<int32_t> FirstRows(int32_t n) {
  std::vector<int32_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// The sequences of a profiling step, if it does not need more. States of many sequences may be more
// than the memory that they will get. A device with its own memory must run decodes of several
// sequences all the same, because that loads the kernels.
int32_t NSequences(const StageModel& model, const kernels::Ops& ops, int32_t max_sequences) {
  if (model.state_bytes() == 0) return max_sequences;
  if (!ops.has_own_memory()) return 1;
  const uint64_t n = ops.Memory().free_bytes / 2 / model.state_bytes();
  return static_cast<int32_t>(std::clamp<uint64_t>(n, 1, static_cast<uint64_t>(max_sequences)));
}

// Runs steps over a small KV cache of its own, which End frees.
class StepRunner {
 public:
  StepRunner(StageModel& model, kernels::Ops& ops, bool is_last, const v1::LoadConfig& config)
      : model_(model),
        ops_(ops),
        is_last_(is_last),
        config_(config),
        n_groups_(static_cast<int32_t>(model.kv_block_bytes().size())),
        max_tokens_(config.max_batched_tokens()),
        max_sequences_(std::min(config.max_sequences(), max_tokens_)),
        n_seqs_(NSequences(model, ops, max_sequences_)) {}

  absl::Status Begin() {
    const LargestStep step(max_tokens_, n_seqs_, n_groups_, config_);
    SC_RETURN_IF_ERROR(model_.AllocateStates(step.batch().seqs.size()));
    return AllocateKv(static_cast<uint64_t>(step.n_blocks()));
  }
  absl::Status End() {
    SC_RETURN_IF_ERROR(model_.AllocateStates(0));
    return AllocateKv(0);
  }

  // Return how long the step takes.
  absl::StatusOr<Milliseconds> RunLargest() { return Time(max_tokens_); }
  absl::StatusOr<Milliseconds> RunOneRow() {
    SC_RETURN_IF_ERROR(Run(1));  // what is done only once
    return Time(1);
  }

  // Runs all other sizes, and one prompt with logits of its last row only.
  absl::Status RunOthers() {
    const std::vector<int32_t> sizes = StepSizes(max_sequences_, max_tokens_);
    for (auto size = std::next(sizes.rbegin()); size != sizes.rend(); ++size) {
      SC_RETURN_IF_ERROR(Run(*size));
    }
    const LargestStep step(max_tokens_, 1, n_groups_, config_);
    return Run(step, {step.batch().n_tokens - 1}, /*knows_rows=*/true);
  }

 private:
  absl::StatusOr<Milliseconds> Time(int32_t size) {
    const auto started = std::chrono::steady_clock::now();
    SC_RETURN_IF_ERROR(Run(size));
    return std::chrono::steady_clock::now() - started;
  }
  absl::Status AllocateKv(uint64_t n_blocks) {
    return model_.AllocateKv(std::vector<uint64_t>(static_cast<size_t>(n_groups_), n_blocks));
  }
  absl::Status Run(int32_t size) {
    const int32_t max_logits = std::min(model_.max_logit_rows(), max_sequences_);
    return Run(LargestStep(size, std::min(size, n_seqs_), n_groups_, config_),
               FirstRows(std::min(size, max_logits)), /*knows_rows=*/false);
  }
  // Runs a step with logits of `rows`, or with their final hidden states. `knows_rows`: passes the
  // rows to Forward.
  absl::Status Run(const LargestStep& step, const std::vector<int32_t>& rows, bool knows_rows) {
    model_.Forward(step.batch(), model_.hidden_buffer(),
                   knows_rows ? LogitRows(rows) : std::nullopt);
    if (is_last_ && model_.spec().pooling) model_.FinalHidden(model_.hidden_buffer(), rows);
    if (is_last_ && !model_.spec().pooling) model_.Logits(model_.hidden_buffer(), rows);
    return ops_.Synchronize();
  }

  StageModel& model_;
  kernels::Ops& ops_;
  const bool is_last_;
  const v1::LoadConfig& config_;
  const int32_t n_groups_;
  const int32_t max_tokens_, max_sequences_;
  const int32_t n_seqs_;  // of a step, if it does not need more
};

// The part of the host's memory to use for a KV cache there.
uint64_t HostKvBytes(const ProfileOptions& options, uint64_t bytes_of_all_groups,
                     uint64_t state_bytes) {
  const double free_bytes = static_cast<double>(ReadHostMemory().available_bytes);
  const uint64_t useful_blocks =
      uint64_t(options.config.max_sequences()) *
      ((options.config.max_model_len() + kernels::kBlockTokens - 1) / kernels::kBlockTokens);
  const uint64_t useful_states = 2 * uint64_t(options.config.max_sequences()) +
                                 useful_blocks * kernels::kBlockTokens / kTokensPerState + 1;
  return std::min(
      static_cast<uint64_t>(free_bytes * kDefaultShare / std::max(1, options.n_local_workers)),
      useful_blocks * bytes_of_all_groups + useful_states * state_bytes);
}

// Blocks per group that the longest sequence needs.
uint64_t BlocksOfLongest(const ModelSpec& spec, const v1::LoadConfig& config) {
  const auto blocks = [](int64_t n_tokens) {
    return static_cast<uint64_t>((n_tokens + kernels::kBlockTokens - 1) / kernels::kBlockTokens);
  };
  int64_t widest = 0;
  for (const KvGroupSpec& group : spec.kv_groups) {
    if (group.window == 0) return blocks(config.max_model_len());
    widest = std::max<int64_t>(widest, group.window.size);
  }
  return std::min(blocks(config.max_model_len()), blocks(widest + config.max_batched_tokens()) + 2);
}

// The memory that remains of the limits' fraction of the device's memory after what is already
// taken. It must hold at least one block of each group.
absl::StatusOr<uint64_t> DeviceKvBytes(const v1::MemoryReport& report, const v1::LoadConfig& config,
                                       uint64_t one_block_each, uint64_t of_longest) {
  const double fraction =
      config.memory_fraction() > 0 ? config.memory_fraction() : kDefaultFraction;
  const auto total = static_cast<double>(report.device_bytes());
  const auto taken = static_cast<double>(report.taken_bytes());
  const double left = fraction * total - taken;
  if (left >= static_cast<double>(one_block_each)) return static_cast<uint64_t>(left);
  const auto fraction_for = [&](uint64_t kv_bytes) {
    return std::ceil((taken + static_cast<double>(kv_bytes)) / total * 1000) / 1000;
  };
  std::string what_would_do = "spread the model over more stages";
  if (fraction_for(of_longest) <= 1) {
    what_would_do = fmt::format("a sequence of {} tokens needs --memory-fraction {:.3f}",
                                config.max_model_len(), fraction_for(of_longest));
  } else if (fraction_for(one_block_each) <= 1) {
    what_would_do = fmt::format(
        "a sequence of {} tokens needs {} more, and the device does not have that: raise "
        "--memory-fraction and lower --max-model-len, or spread the model over more stages",
        config.max_model_len(), FormatBytes(of_longest));
  }
  return absl::ResourceExhaustedError(
      fmt::format("--memory-fraction {:.3g} of the device's {} leaves no memory for the KV cache: "
                  "weights, scratch and other processes take {}; {}",
                  fraction, FormatBytes(report.device_bytes()), FormatBytes(report.taken_bytes()),
                  what_would_do));
}

}  // namespace

absl::StatusOr<v1::MemoryReport> ProfileMemory(StageModel& model, kernels::Ops& ops, bool is_last,
                                               const ProfileOptions& options) {
  const v1::LoadConfig& config = options.config;
  const std::vector<uint64_t> block_bytes = model.kv_block_bytes();
  SC_RETURN_IF_ERROR(ops.Rehearse(true));
  StepRunner runner(model, ops, is_last, config);
  SC_RETURN_IF_ERROR(runner.Begin());
  SC_ASSIGN_OR_RETURN(Milliseconds largest_step, runner.RunLargest());
  if (ops.has_own_memory()) SC_RETURN_IF_ERROR(runner.RunOthers());
  SC_RETURN_IF_ERROR(ops.Rehearse(false));
  // The runs above include autotuning, which takes seconds on a device.
  if (ops.has_own_memory()) {
    SC_ASSIGN_OR_RETURN(largest_step, runner.RunLargest());
  }
  Milliseconds one_row(0);
  if (options.times_one_row) {
    SC_ASSIGN_OR_RETURN(one_row, runner.RunOneRow());
  }
  SC_RETURN_IF_ERROR(runner.End());

  const uint64_t a_block_each = std::reduce(block_bytes.begin(), block_bytes.end());
  // The states of a sequence, and those that are saved for it at least.
  const uint64_t state_bytes = 3 * model.state_bytes();
  const uint64_t one_block_each = a_block_each + state_bytes;
  const uint64_t of_longest = a_block_each * BlocksOfLongest(model.spec(), config) + state_bytes;
  v1::MemoryReport report;
  uint64_t kv_bytes = config.kv_memory_bytes();
  if (kv_bytes == 0 && ops.has_own_memory()) {
    const kernels::MemoryInUse memory = ops.Memory();
    report.set_device_bytes(memory.total_bytes);
    report.set_taken_bytes(memory.total_bytes - memory.free_bytes + ReservedBytes(options.n_links));
    SC_ASSIGN_OR_RETURN(kv_bytes, DeviceKvBytes(report, config, one_block_each, of_longest));
  } else if (kv_bytes == 0) {
    kv_bytes = HostKvBytes(options, a_block_each, model.state_bytes());
  }
  if (kv_bytes < one_block_each) {
    return absl::ResourceExhaustedError(
        fmt::format("{} of KV memory do not hold one KV block of each kind on this stage; it needs "
                    "at least {} (--kv-memory {}); a sequence of {} tokens needs {}",
                    FormatBytes(kv_bytes), FormatBytes(one_block_each), one_block_each,
                    config.max_model_len(), FormatBytes(of_longest)));
  }

  report.set_weights_bytes(model.weights_bytes());
  for (const auto& [encoding, bytes] : model.weights_by_encoding()) {
    (*report.mutable_weights())[encoding] = bytes;
  }
  report.set_scratch_bytes(model.scratch_bytes());
  report.set_kv_bytes(kv_bytes);
  for (const uint64_t bytes : block_bytes) report.add_kv_block_bytes(bytes);
  report.set_state_bytes(model.state_bytes());
  report.set_largest_step_ms(largest_step.count());
  report.set_one_row_ms(one_row.count());
  return report;
}

absl::Status WarmUp(StageModel& model, kernels::Ops& ops, bool is_last,
                    const v1::LoadConfig& config) {
  if (!ops.has_own_memory()) return absl::OkStatus();
  Laps laps;
  StepRunner runner(model, ops, is_last, config);
  SC_RETURN_IF_ERROR(runner.Begin());
  laps.End("KV cache");
  SC_RETURN_IF_ERROR(runner.RunLargest().status());
  laps.End("largest step");
  SC_RETURN_IF_ERROR(runner.RunOthers());
  laps.End("other steps");
  SC_RETURN_IF_ERROR(runner.End());
  spdlog::debug("the first steps are ready after {}", laps.ToString());
  return absl::OkStatus();
}

}  // namespace stagecoach::worker
