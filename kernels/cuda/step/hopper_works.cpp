#include "kernels/cuda/step/hopper_works.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "kernels/cuda/device/scratch_layout.h"

namespace stagecoach::kernels::cuda {
namespace {

// Measured throughput of an H200 in FLOP per second. The values only decide which kernel is faster.
// DenseRate (HopperPrefill) is per SM, because that kernel may have fewer work items than SMs. The
// other rates are for the whole GPU, because the other kernels also split the keys.
constexpr double DenseRate(int32_t head_dim) {
  return head_dim <= 64 ? 4.0e12 : head_dim <= 128 ? 5.7e12 : 6.4e12;
}
constexpr double PackedRate(int32_t head_dim) { return head_dim <= 64 ? 218e12 : 305e12; }
constexpr double OtherRate(int32_t head_dim) { return head_dim <= 128 ? 95e12 : 62e12; }
constexpr double kGatherRate = 4.0e12;                           // bytes per second
constexpr double kDenseSeconds = 10e-6, kOthersSeconds = 15e-6;  // fixed cost per launch
constexpr double kWorkSeconds = 3e-6, kTileSeconds = 8e-6;  // fixed cost per work item and per tile
// With fewer rows per sequence, most of a HopperPrefill tile is empty: a tile has rows of one
// sequence.
constexpr int32_t kLeastRows = 32;

int32_t GatheredBlocks(const StepSeq& seq) {
  return static_cast<int32_t>(CeilDiv(seq.position + seq.n_tokens, kGatheredTile) *
                              (kGatheredTile / kBlockTokens));
}

// Estimated time of one sequence with either kernel.
struct Costs {
  double dense = 0, longest_work = 0, others = 0;  // seconds
};

Costs CostsOf(const Stream& stream, const StepLimits& limits, const HopperWorks::Setup& setup,
              const StepSeq& seq) {
  const double per_pair = 4.0 * limits.head_dim;  // FLOP per row, head and key
  const double keys = seq.position + 0.5 * seq.n_tokens;
  const double tiles = static_cast<double>(CeilDiv(seq.n_tokens, setup.tile_rows));
  const double work = setup.tile_rows * keys * per_pair / DenseRate(limits.head_dim) + kWorkSeconds;
  const double gather =
      static_cast<double>(GatheredBlocks(seq)) * kBlockTokens * 2 *
      static_cast<double>(BytesOfGatheredKey(limits.n_kv_heads, limits.head_dim)) / kGatherRate;
  const double rate =
      setup.others_packed ? PackedRate(limits.head_dim) : OtherRate(limits.head_dim);
  const int32_t group = limits.n_heads / limits.n_kv_heads;
  const auto other_tiles = static_cast<double>(
      limits.n_kv_heads * CeilDiv(int64_t{seq.n_tokens} * group, setup.other_tile_rows));
  return {.dense = tiles * limits.n_heads * work / stream.n_multiprocessors + gather,
          .longest_work = work + gather,
          .others = other_tiles * (setup.other_tile_rows * keys * per_pair / rate +
                                   kTileSeconds / stream.n_multiprocessors)};
}

// The smallest number of passes, each over an equal part of the KV heads, for which `n_keys` keys
// fit into the gather buffer. 0: they never fit.
int32_t Passes(int64_t n_keys, int64_t capacity, int32_t n_kv_heads) {
  for (int32_t n = 1; n <= n_kv_heads; ++n) {
    if (n_kv_heads % n == 0 && n_keys <= capacity * n) return n;
  }
  return 0;
}

}  // namespace

void HopperWorks::Choose(const Stream& stream, const StepLimits& limits, const Setup& setup,
                         std::span<const StepSeq> seqs) {
  setup_ = setup;
  first_keys_.assign(seqs.size(), -1);
  n_seqs_ = n_blocks_ = 0;
  n_passes_ = 1;
  if (setup.tile_rows == 0) return;
  // Takes the sequences with the most rows. Their number minimizes the sum of both kernels' times.
  std::vector<size_t> order;
  std::vector<Costs> costs(seqs.size());
  double others = 0;
  size_t n_others = 0;
  for (size_t s = 0; s < seqs.size(); ++s) {
    if (seqs[s].n_tokens == 1) continue;
    costs[s] = CostsOf(stream, limits, setup, seqs[s]);
    others += costs[s].others;
    ++n_others;
    if (seqs[s].n_tokens >= kLeastRows) order.push_back(s);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return seqs[a].n_tokens > seqs[b].n_tokens; });
  double dense = 0, longest = 0, best = others + kOthersSeconds;
  size_t n_best = 0;
  int64_t n_blocks = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const Costs& cost = costs[order[i]];
    n_blocks += GatheredBlocks(seqs[order[i]]);
    if (Passes(n_blocks * kBlockTokens, setup.capacity, limits.n_kv_heads) == 0) break;
    dense += cost.dense;
    longest = std::max(longest, cost.longest_work);
    others -= cost.others;
    const double seconds =
        std::max(dense, longest) + kDenseSeconds + (i + 1 < n_others ? others + kOthersSeconds : 0);
    if (seconds < best) {
      best = seconds;
      n_best = i + 1;
    }
  }
  order.resize(n_best);
  std::sort(order.begin(), order.end());
  for (const size_t s : order) {
    first_keys_[s] = n_blocks_ * kBlockTokens;
    n_blocks_ += GatheredBlocks(seqs[s]);
    ++n_seqs_;
  }
  n_passes_ = Passes(int64_t{n_blocks_} * kBlockTokens, setup.capacity, limits.n_kv_heads);
}

void HopperWorks::Plan(const Stream& stream, const StepLimits& limits,
                       std::span<const StepSeq> seqs, std::span<const int32_t> starts) {
  struct Tile {
    int32_t seq, index, n_keys;
  };
  struct Work {
    int32_t head;
    const Tile* tile;
  };
  std::vector<Tile> tiles;
  for (size_t s = 0; s < seqs.size(); ++s) {
    const StepSeq& seq = seqs[s];
    if (!Has(s)) continue;
    for (int32_t index = 0; index * setup_.tile_rows < seq.n_tokens; ++index) {
      tiles.push_back({static_cast<int32_t>(s), index,
                       seq.position + std::min((index + 1) * setup_.tile_rows, seq.n_tokens)});
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Tile& a, const Tile& b) { return a.n_keys > b.n_keys; });
  // Longest processing time first (R. Graham, 1969): each work item goes to the CTA with the least
  // work so far.
  const auto n_blocks = static_cast<size_t>(stream.n_multiprocessors);
  const int32_t n_heads = limits.n_heads / n_passes_;
  std::vector<std::vector<Work>> by_block(n_blocks);
  std::vector<std::pair<int64_t, size_t>> heap;
  for (size_t b = 0; b < n_blocks; ++b) heap.emplace_back(0, b);
  const auto more = std::greater<std::pair<int64_t, size_t>>();
  for (const Tile& tile : tiles) {
    for (int32_t head = 0; head < n_heads; ++head) {
      std::pop_heap(heap.begin(), heap.end(), more);
      by_block[heap.back().second].push_back({head, &tile});
      heap.back().first += tile.n_keys + setup_.tile_rows;
      std::push_heap(heap.begin(), heap.end(), more);
    }
  }
  n_works_ = static_cast<int32_t>(tiles.size()) * n_heads;

  arrays_.clear();
  int32_t start = 0;
  for (const std::vector<Work>& of_block : by_block) {
    arrays_.push_back(start);
    start += static_cast<int32_t>(of_block.size());
  }
  // SMs that are left to other kernels get an empty range.
  arrays_.resize(static_cast<size_t>(stream.n_all_multiprocessors) + 1, start);
  const auto for_all = [&](const auto& value) {
    for (const std::vector<Work>& of_block : by_block) {
      for (const Work& work : of_block) {
        arrays_.push_back(value(work, static_cast<size_t>(work.tile->seq)));
      }
    }
  };
  for_all([](const Work& work, size_t) { return work.head; });
  for_all([](const Work& work, size_t) { return work.tile->index; });
  for_all([&](const Work&, size_t s) { return starts[s]; });
  for_all([&](const Work&, size_t s) { return first_keys_[s]; });
  for_all([&](const Work&, size_t s) { return seqs[s].n_tokens; });
  for_all([&](const Work&, size_t s) { return seqs[s].position + seqs[s].n_tokens; });
  for_all([](const Work& work, size_t) { return work.tile->seq; });

  const auto for_gathered = [&](const auto& value) {
    for (size_t s = 0; s < seqs.size(); ++s) {
      if (Has(s)) arrays_.push_back(value(s));
    }
  };
  for_gathered([&](size_t s) { return first_keys_[s] / kBlockTokens; });
  arrays_.push_back(n_blocks_);
  for_gathered([&](size_t s) { return seqs[s].slot * limits.max_blocks; });
  for_gathered([&](size_t s) { return seqs[s].position + seqs[s].n_tokens; });
}

HopperPlan HopperWorks::At(const Stream& stream, const int32_t* arrays) const {
  const int32_t* const of_works = arrays + stream.n_all_multiprocessors + 1;
  const auto array = [&](int i) { return of_works + int64_t{i} * n_works_; };
  const int32_t* const of_gathered = array(7);
  return {.gather = {.block_starts = of_gathered,
                     .first_entries = of_gathered + n_seqs_ + 1,
                     .n_keys = of_gathered + 2 * n_seqs_ + 1,
                     .n_seqs = n_seqs_,
                     .n_blocks = n_blocks_},
          .block_starts = arrays,
          .heads = array(0),
          .tiles = array(1),
          .first_rows = array(2),
          .first_keys = array(3),
          .n_rows = array(4),
          .n_keys = array(5),
          .seqs = array(6),
          .n_works = n_works_,
          .n_passes = n_passes_};
}

size_t HopperWorks::MaxArrays(const Stream& stream, const StepLimits& limits, const Setup& setup) {
  if (setup.tile_rows == 0) return 0;
  const auto tokens = static_cast<size_t>(limits.max_tokens);
  const auto slots = static_cast<size_t>(limits.max_slots);
  const size_t works =
      (tokens / static_cast<size_t>(setup.tile_rows) + slots) * static_cast<size_t>(limits.n_heads);
  return static_cast<size_t>(stream.n_all_multiprocessors) + 1 + 7 * works + 3 * slots + 1;
}

}  // namespace stagecoach::kernels::cuda
