#include "router/sizing/kv_sizing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "common/kv_block.h"
#include "common/size.h"

namespace stagecoach::router {
namespace {

uint64_t BlocksFor(uint64_t n_tokens) { return (n_tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

// Blocks that one sequence can hold at the same time in a window group: the window, the chunk being
// computed, and one more at either end, because the two may begin inside a block.
uint64_t WindowBlocks(int32_t window, const KvSizingLimits& limits) {
  return BlocksFor(uint64_t(window) + uint64_t(limits.max_prefill_chunk)) + 2;
}

size_t WidestGroup(std::span<const KvGroupSpec> groups) {
  size_t widest = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].window == 0) return g;
    if (groups[g].window.size > groups[widest].window.size) widest = g;
  }
  return widest;
}

std::vector<uint64_t> BlocksByGroup(std::span<const KvGroupSpec> groups, uint64_t n,
                                    const KvSizingLimits& limits) {
  const size_t widest = WidestGroup(groups);
  std::vector<uint64_t> blocks(groups.size(), n);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (g == widest || groups[g].window == 0) continue;
    // Not all sequences can prefill in the same step. There must be enough blocks for one sequence
    // at least.
    const auto window = uint64_t(groups[g].window.size);
    const uint64_t most = uint64_t(limits.max_sequences) * (BlocksFor(window) + 2) +
                          std::max(BlocksFor(uint64_t(limits.max_batched_tokens)),
                                   WindowBlocks(groups[g].window.size, limits));
    blocks[g] = std::min(n, most);
  }
  return blocks;
}

// The states of recurrent layers beside n blocks of the widest group.
uint64_t StatesFor(uint64_t n, const KvSizingLimits& limits) {
  const auto n_sequences = static_cast<uint64_t>(limits.max_sequences);
  constexpr uint64_t kBlocks = kTokensPerState / kKvBlockTokens;
  return limits.saves_states ? 2 * n_sequences + (n + kBlocks - 1) / kBlocks : n_sequences;
}

// The number of sequences whose states take at most half of every stage's memory.
int32_t SequencesFor(std::span<const StageKvMemory> stages, const KvSizingLimits& limits) {
  int32_t n = limits.max_sequences;
  for (const StageKvMemory& stage : stages) {
    const uint64_t a_sequence = stage.state_bytes * (limits.saves_states ? 2 : 1);
    if (a_sequence == 0) continue;
    n = static_cast<int32_t>(std::clamp<uint64_t>(stage.kv_bytes / 2 / a_sequence, 1, uint64_t(n)));
  }
  return n;
}

// n: blocks of the widest group.
unsigned __int128 BytesOf(std::span<const uint64_t> blocks, uint64_t n, const StageKvMemory& stage,
                          const KvSizingLimits& limits) {
  unsigned __int128 bytes =
      stage.state_bytes == 0
          ? 0
          : static_cast<unsigned __int128>(StatesFor(n, limits)) * stage.state_bytes;
  for (size_t g = 0; g < blocks.size(); ++g) {
    bytes += static_cast<unsigned __int128>(blocks[g]) * stage.block_bytes[g];
  }
  return bytes;
}

// The flag that sets the KV cache limit of stage `tightest`, with a value that is enough for n
// blocks of the widest group on every stage. Empty: no value is enough.
std::string FlagFor(std::span<const KvGroupSpec> groups, uint64_t n,
                    std::span<const StageKvMemory> stages, const StageKvMemory& tightest,
                    const KvSizingLimits& limits) {
  const std::vector<uint64_t> blocks = BlocksByGroup(groups, n, limits);
  double most_bytes = 0, most_fraction = 0;
  for (const StageKvMemory& stage : stages) {
    const auto bytes = static_cast<double>(BytesOf(blocks, n, stage, limits));
    most_bytes = std::max(most_bytes, bytes);
    if (stage.device_bytes == 0) continue;
    most_fraction = std::max(most_fraction, (static_cast<double>(stage.taken_bytes) + bytes) /
                                                static_cast<double>(stage.device_bytes));
  }
  if (tightest.device_bytes == 0) return fmt::format("raise --kv-memory to {:.0f}, ", most_bytes);
  if (most_fraction > 1) return "";
  return fmt::format("raise --memory-fraction to {:.3f}, ", std::ceil(most_fraction * 1000) / 1000);
}

// The largest n for which the blocks of all groups fit into the stage's memory.
uint64_t LargestPool(std::span<const KvGroupSpec> groups, const StageKvMemory& stage,
                     const KvSizingLimits& limits) {
  uint64_t fits = 0;
  uint64_t too_many = kMaxKvBlocks + 1;
  while (too_many - fits > 1) {
    const uint64_t n = fits + (too_many - fits) / 2;
    const bool is_enough =
        BytesOf(BlocksByGroup(groups, n, limits), n, stage, limits) <= stage.kv_bytes;
    (is_enough ? fits : too_many) = n;
  }
  return fits;
}

}  // namespace

absl::StatusOr<KvPlan> SizeKv(std::span<const KvGroupSpec> groups,
                              std::span<const StageKvMemory> stages,
                              const KvSizingLimits& requested) {
  SC_CHECK(!groups.empty() && !stages.empty());
  KvSizingLimits limits = requested;
  limits.max_sequences = SequencesFor(stages, requested);
  uint64_t n = kMaxKvBlocks;
  const StageKvMemory* tightest = &stages[0];
  for (const StageKvMemory& stage : stages) {
    SC_CHECK(stage.block_bytes.size() == groups.size());
    const uint64_t here = LargestPool(groups, stage, limits);
    if (here < n) {
      n = here;
      tightest = &stage;
    }
  }
  if (n == 0) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: {} for the KV cache do not hold a single block; give it more memory, "
                    "raise --kv-memory or split the model over more stages",
                    tightest->name, FormatBytes(tightest->kv_bytes)));
  }

  // If every layer has a window, a sequence of any length needs only the window's blocks.
  const int32_t widest_window = groups[WidestGroup(groups)].window.size;
  uint64_t n_needed = BlocksFor(uint64_t(limits.max_model_len));
  if (widest_window > 0) n_needed = std::min(n_needed, WindowBlocks(widest_window, limits));
  KvPlan plan{.n_blocks = BlocksByGroup(groups, n, limits),
              .kv_blocks = n,
              .max_model_len = limits.max_model_len,
              .max_sequences = limits.max_sequences};
  const bool has_states = std::any_of(stages.begin(), stages.end(),
                                      [](const auto& stage) { return stage.state_bytes > 0; });
  if (has_states) plan.n_states = StatesFor(n, limits);
  if (n_needed <= n) return plan;
  if (limits.max_model_len_is_fixed) {
    return absl::ResourceExhaustedError(fmt::format(
        "--max-model-len {} needs {} KV blocks of {} tokens, but {} has room for {} in {}; lower "
        "--max-model-len to {}, {}or split the model over more stages",
        limits.max_model_len, n_needed, kKvBlockTokens, tightest->name, n,
        FormatBytes(tightest->kv_bytes), n * kKvBlockTokens,
        // With more memory, more sequences have states.
        FlagFor(groups, n_needed, stages, *tightest, requested)));
  }
  plan.max_model_len = static_cast<int32_t>(n * kKvBlockTokens);
  return plan;
}

}  // namespace stagecoach::router
