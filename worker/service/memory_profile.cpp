#include "worker/service/memory_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "common/host_memory.h"
#include "common/size.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

constexpr double kDefaultShare = 0.4;  // of what is free, the machine's workers together

// A step of `n_tokens` rows spread evenly over `n_seqs` sequences, each from position 0.
class LargestStep {
 public:
  LargestStep(int32_t n_tokens, int32_t n_seqs, int32_t n_groups)
      : token_ids_(n_tokens, 0), positions_(n_tokens), kv_slots_(n_tokens) {
    stride_ = BlocksFor((n_tokens + n_seqs - 1) / n_seqs);
    block_tables_.assign(size_t(n_seqs) * stride_, -1);
    seq_starts_.push_back(0);
    for (int32_t s = 0; s < n_seqs; ++s) {
      const int32_t begin = seq_starts_.back();
      const int32_t end = static_cast<int32_t>(int64_t{n_tokens} * (s + 1) / n_seqs);
      for (int32_t i = begin; i < end; ++i) {
        const int32_t position = i - begin;
        if (position % kernels::kBlockTokens == 0) {
          block_tables_[size_t(s) * stride_ + position / kernels::kBlockTokens] = n_blocks_++;
        }
        positions_[i] = position;
        kv_slots_[i] = (n_blocks_ - 1) * kernels::kBlockTokens + position % kernels::kBlockTokens;
      }
      seq_starts_.push_back(end);
    }
    seq_positions_.assign(n_seqs, 0);
    groups_.assign(
        n_groups,
        {.kv_slots = kv_slots_, .block_tables = block_tables_, .block_table_stride = stride_});
  }

  int32_t n_blocks() const { return n_blocks_; }
  StepBatch batch() const {
    return {.token_ids = token_ids_,
            .positions = positions_,
            .seq_starts = seq_starts_,
            .seq_positions = seq_positions_,
            .groups = groups_};
  }

 private:
  static int32_t BlocksFor(int32_t n) {
    return (n + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
  }

  std::vector<int32_t> token_ids_, positions_, kv_slots_, seq_starts_, seq_positions_;
  std::vector<int32_t> block_tables_;
  std::vector<StepBatch::Group> groups_;
  int32_t stride_ = 0;
  int32_t n_blocks_ = 0;
};

}  // namespace

absl::StatusOr<v1::MemoryReport> ProfileMemory(StageModel& model, kernels::Ops& ops, bool is_last,
                                               const ProfileLimits& limits) {
  const std::vector<uint64_t> block_bytes = model.kv_block_bytes();
  const auto n_groups = static_cast<int32_t>(block_bytes.size());
  const int32_t n_tokens = limits.max_batched_tokens;
  const LargestStep step(n_tokens, std::min(limits.max_sequences, n_tokens), n_groups);

  const auto started = std::chrono::steady_clock::now();
  SC_RETURN_IF_ERROR(
      model.AllocateKv(std::vector<uint64_t>(n_groups, static_cast<uint64_t>(step.n_blocks()))));
  model.Forward(step.batch(), model.hidden_buffer());
  if (is_last) {
    std::vector<int32_t> rows(std::min({model.max_logit_rows(), limits.max_sequences, n_tokens}));
    std::iota(rows.begin(), rows.end(), 0);
    model.Logits(model.hidden_buffer(), rows);
  }
  SC_RETURN_IF_ERROR(ops.Synchronize());
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - started;
  SC_RETURN_IF_ERROR(model.AllocateKv(std::vector<uint64_t>(n_groups, 0)));

  const uint64_t one_block_each = std::reduce(block_bytes.begin(), block_bytes.end());
  uint64_t kv_bytes = limits.kv_memory_bytes;
  if (kv_bytes == 0) {
    const double free_bytes = static_cast<double>(ReadHostMemory().available_bytes);
    const uint64_t useful_blocks =
        uint64_t(limits.max_sequences) *
        ((limits.max_model_len + kernels::kBlockTokens - 1) / kernels::kBlockTokens);
    kv_bytes = std::min(
        static_cast<uint64_t>(free_bytes * kDefaultShare / std::max(1, limits.n_local_workers)),
        useful_blocks * one_block_each);
  }
  if (kv_bytes < one_block_each) {
    return absl::ResourceExhaustedError(
        fmt::format("{} of KV memory do not hold one KV block of each kind on this stage; it takes "
                    "at least {} (--kv-memory {})",
                    FormatBytes(kv_bytes), FormatBytes(one_block_each), one_block_each));
  }

  v1::MemoryReport report;
  report.set_weights_bytes(model.weights_bytes());
  report.set_scratch_bytes(model.scratch_bytes());
  report.set_kv_bytes(kv_bytes);
  for (const uint64_t bytes : block_bytes) report.add_kv_block_bytes(bytes);
  report.set_profile_ms(took.count());
  return report;
}

}  // namespace stagecoach::worker
