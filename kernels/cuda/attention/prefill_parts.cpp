#include "kernels/cuda/attention/prefill_parts.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "common/check.h"

namespace stagecoach::kernels::cuda {
namespace {

// In units of key tiles: fixed cost of a part, minimum size of a part that justifies a merge, and
// cost of a merge.
constexpr int64_t kPartCost = 1, kLeastPart = 4, kMergeCost = 3;

constexpr int64_t CeilOf(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A tile for one KV head.
struct Segment {
  const PrefillTile* tile;
  int32_t kv_head;

  int64_t length() const { return tile->end_key_tile - tile->first_key_tile; }
  int64_t cost() const { return length() + kPartCost; }
};

class Sharing {
 public:
  Sharing(std::span<const PrefillTile> tiles, const PrefillShape& shape)
      : shape_(shape), of_block_(static_cast<size_t>(shape.n_blocks)) {
    for (const PrefillTile& tile : tiles) {
      SC_CHECK(tile.end_key_tile > tile.first_key_tile);
      for (int32_t head = 0; head < shape.n_kv_heads; ++head) segments_.push_back({&tile, head});
    }
    std::stable_sort(segments_.begin(), segments_.end(),
                     [](const Segment& a, const Segment& b) { return a.length() > b.length(); });
    for (const Segment& segment : segments_) total_ += segment.cost();
  }

  PrefillShares Run() {
    const std::vector<size_t> blocks = LongestFirst();
    const int64_t wanted = std::max(kLeastPart, CeilOf(total_, shape_.n_blocks));
    if (most_ <= wanted + wanted / 8 + kMergeCost) {
      for (size_t s = 0; s < segments_.size(); ++s) PutWhole(segments_[s], blocks[s]);
    } else {
      Cut(wanted);
    }
    return Result();
  }

 private:
  // Longest processing time first (R. Graham, 1969): assigns each whole segment to the CTA with the
  // least work. Returns the CTA of each segment and sets most_ to the work of the busiest CTA.
  std::vector<size_t> LongestFirst() {
    std::vector<std::pair<int64_t, size_t>> heap;
    for (size_t b = 0; b < of_block_.size(); ++b) heap.emplace_back(0, b);
    const auto more = std::greater<std::pair<int64_t, size_t>>();
    std::vector<size_t> blocks;
    for (const Segment& segment : segments_) {
      std::pop_heap(heap.begin(), heap.end(), more);
      heap.back().first += segment.cost();
      most_ = std::max(most_, heap.back().first);
      blocks.push_back(heap.back().second);
      std::push_heap(heap.begin(), heap.end(), more);
    }
    return blocks;
  }

  // Number of parts if each has at most `longest` key tiles.
  int64_t NParts(const Segment& segment, int64_t longest) const {
    const int64_t unit = std::max(1, shape_.unit_tiles);
    return CeilOf(CeilOf(segment.length(), unit), std::max<int64_t>(1, longest / unit));
  }
  int64_t NParts(int64_t longest) const {
    int64_t n = 0;
    for (const Segment& segment : segments_) n += NParts(segment, longest);
    return n;
  }

  void Cut(int64_t wanted) {
    const int64_t n_used = std::min<int64_t>(shape_.n_blocks, CeilOf(total_, kLeastPart));
    // One part per CTA, if no CTA then waits much longer than the average.
    const int64_t most = wanted + wanted / 4;
    if (static_cast<int64_t>(segments_.size()) <= n_used) {
      for (int64_t longest = wanted; longest <= std::max<int64_t>(most, shape_.unit_tiles);
           longest += longest / 16 + 1) {
        if (NParts(longest) > n_used) continue;
        size_t block = 0;
        for (const Segment& segment : segments_) {
          const int64_t n = NParts(segment, longest), length = segment.length();
          std::vector<int64_t> ends;
          for (int64_t i = 1; i <= n; ++i) ends.push_back(i * length / n);
          PutParts(segment, ends, [&](int64_t) { return block++; });
        }
        return;
      }
    }
    // Otherwise concatenate all segments and cut evenly.
    int64_t begin = 0;
    for (const Segment& segment : segments_) {
      const int64_t length = segment.length(), n = CeilOf(total_, n_used);
      std::vector<int64_t> ends;
      for (int64_t cut = CeilOf(begin + 1, n) * n; cut < begin + length; cut += n) {
        // Parts of less than two key tiles are not worth a cut.
        if (cut - begin >= 2 && begin + length - cut >= 2) ends.push_back(cut - begin);
      }
      ends.push_back(length);
      PutParts(segment, ends, [&](int64_t middle) {
        return std::min(static_cast<size_t>((begin + middle) / n), of_block_.size() - 1);
      });
      begin += segment.cost();
    }
  }

  void PutWhole(const Segment& segment, size_t block) {
    of_block_[block].push_back({.seq = segment.tile->seq,
                                .first_row = segment.tile->first_row,
                                .kv_head = segment.kv_head,
                                .first_key_tile = segment.tile->first_key_tile,
                                .end_key_tile = segment.tile->end_key_tile,
                                .state = -1,
                                .keeps_units = 0});
  }

  // ends: end of each part; the last one is the segment's length. block_of(middle) returns the CTA
  // of a part; it is called in order.
  template <typename BlockOf>
  void PutParts(const Segment& segment, const std::vector<int64_t>& ends, const BlockOf& block_of) {
    const PrefillTile& tile = *segment.tile;
    std::vector<int32_t> cuts = {tile.first_key_tile};
    for (const int64_t end : ends) {
      const int32_t cut = end == segment.length()
                              ? tile.end_key_tile
                              : AtUnit(tile.first_key_tile + static_cast<int32_t>(end));
      if (cut > cuts.back() && cut <= tile.end_key_tile) cuts.push_back(cut);
    }
    int32_t n_states = 1;  // first part: its units merge in place, so one state is enough
    for (size_t i = 1; i + 1 < cuts.size(); ++i) n_states += NStates(cuts[i], cuts[i + 1]);
    const auto block_at = [&](size_t i) {
      return block_of((cuts[i] + cuts[i + 1]) / 2 - tile.first_key_tile);
    };
    if (cuts.size() == 2 || n_states_ + n_states > shape_.max_states) {
      return PutWhole(segment, block_of(segment.length() / 2));
    }
    merges_.push_back({.seq = tile.seq,
                       .first_row = tile.first_row,
                       .kv_head = segment.kv_head,
                       .first_state = n_states_,
                       .n_states = n_states});
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const bool keeps_units = i > 0 && shape_.unit_tiles > 0;
      of_block_[block_at(i)].push_back({.seq = tile.seq,
                                        .first_row = tile.first_row,
                                        .kv_head = segment.kv_head,
                                        .first_key_tile = cuts[i],
                                        .end_key_tile = cuts[i + 1],
                                        .state = n_states_,
                                        .keeps_units = keeps_units ? 1 : 0});
      n_states_ += i == 0 ? 1 : NStates(cuts[i], cuts[i + 1]);
    }
  }
  int32_t AtUnit(int32_t key_tile) const {
    const int32_t unit = shape_.unit_tiles;
    return unit == 0 ? key_tile : (key_tile + unit / 2) / unit * unit;
  }
  int32_t NStates(int32_t first_key_tile, int32_t end_key_tile) const {
    const int32_t unit = shape_.unit_tiles;
    return unit == 0 ? 1 : (end_key_tile - 1) / unit - first_key_tile / unit + 1;
  }

  PrefillShares Result() {
    PrefillShares shares;
    for (const std::vector<PrefillPart>& parts : of_block_) {
      shares.starts.push_back(static_cast<int32_t>(shares.parts.size()));
      shares.parts.insert(shares.parts.end(), parts.begin(), parts.end());
    }
    shares.starts.push_back(static_cast<int32_t>(shares.parts.size()));
    shares.merges = std::move(merges_);
    return shares;
  }

  const PrefillShape& shape_;
  std::vector<Segment> segments_;
  int64_t total_ = 0, most_ = 0;
  std::vector<std::vector<PrefillPart>> of_block_;
  std::vector<PrefillMerge> merges_;
  int32_t n_states_ = 0;
};

}  // namespace

PrefillShares SharePrefill(std::span<const PrefillTile> tiles, const PrefillShape& shape) {
  return Sharing(tiles, shape).Run();
}

}  // namespace stagecoach::kernels::cuda
