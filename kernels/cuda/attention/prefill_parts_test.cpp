#include "kernels/cuda/attention/prefill_parts.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <map>
#include <random>
#include <tuple>

namespace stagecoach::kernels::cuda {
namespace {

// Every tile's keys must be in exactly one part per head, cut only where allowed. Merges must name
// the states of the parts, in key order.
PrefillShares Checked(const std::vector<PrefillTile>& tiles, const PrefillShape& shape) {
  PrefillShares shares = SharePrefill(tiles, shape);
  REQUIRE(shares.starts.size() == static_cast<size_t>(shape.n_blocks) + 1);
  CHECK(shares.starts.front() == 0);
  CHECK(shares.starts.back() == static_cast<int32_t>(shares.parts.size()));
  CHECK(std::is_sorted(shares.starts.begin(), shares.starts.end()));
  CHECK(shares.merges.size() <= static_cast<size_t>(shape.n_blocks));
  CHECK(shares.parts.size() <=
        tiles.size() * static_cast<size_t>(shape.n_kv_heads) + static_cast<size_t>(shape.n_blocks));

  using Segment = std::tuple<int32_t, int32_t, int32_t>;  // sequence, first row, head
  std::map<Segment, std::vector<PrefillPart>> segments;
  for (const PrefillPart& part : shares.parts) {
    segments[{part.seq, part.first_row, part.kv_head}].push_back(part);
  }
  std::map<Segment, PrefillMerge> merges;
  for (const PrefillMerge& merge : shares.merges) {
    CHECK(merges.emplace(Segment{merge.seq, merge.first_row, merge.kv_head}, merge).second);
  }
  CHECK(segments.size() == tiles.size() * static_cast<size_t>(shape.n_kv_heads));
  int32_t n_states = 0;
  for (const PrefillTile& tile : tiles) {
    for (int32_t head = 0; head < shape.n_kv_heads; ++head) {
      std::vector<PrefillPart>& parts = segments[{tile.seq, tile.first_row, head}];
      std::sort(parts.begin(), parts.end(), [](const PrefillPart& a, const PrefillPart& b) {
        return a.first_key_tile < b.first_key_tile;
      });
      REQUIRE(!parts.empty());
      CHECK(parts.front().first_key_tile == tile.first_key_tile);
      CHECK(parts.back().end_key_tile == tile.end_key_tile);
      const auto merge = merges.find({tile.seq, tile.first_row, head});
      if (merge == merges.end()) {
        CHECK(parts.size() == 1);
        CHECK(parts[0].state == -1);
        CHECK(parts[0].keeps_units == 0);
        continue;
      }
      CHECK(parts.size() > 1);
      int32_t state = merge->second.first_state;
      for (size_t i = 0; i < parts.size(); ++i) {
        const PrefillPart& part = parts[i];
        CHECK(part.end_key_tile > part.first_key_tile);
        CHECK(part.state == state);
        int32_t n = 1;
        if (i > 0) {
          CHECK(part.first_key_tile == parts[i - 1].end_key_tile);
          if (shape.unit_tiles > 0) {
            CHECK(part.first_key_tile % shape.unit_tiles == 0);
            n = (part.end_key_tile - part.first_key_tile + shape.unit_tiles - 1) / shape.unit_tiles;
          }
        }
        CHECK(part.keeps_units == (i > 0 && shape.unit_tiles > 0));
        state += n;
      }
      CHECK(state - merge->second.first_state == merge->second.n_states);
      n_states = std::max(n_states, state);
    }
  }
  CHECK(n_states <= shape.max_states);
  return shares;
}

// Key tiles of the busiest CTA, and of all CTAs.
std::pair<int64_t, int64_t> MostAndAll(const PrefillShares& shares) {
  int64_t most = 0, all = 0;
  for (size_t b = 0; b + 1 < shares.starts.size(); ++b) {
    int64_t of_block = 0;
    for (int32_t i = shares.starts[b]; i < shares.starts[b + 1]; ++i) {
      const PrefillPart& part = shares.parts[static_cast<size_t>(i)];
      of_block += part.end_key_tile - part.first_key_tile;
    }
    most = std::max(most, of_block);
    all += of_block;
  }
  return {most, all};
}

TEST_CASE("prefill parts: few rows after a long context are spread over all CTAs") {
  const int32_t n_tiles = GENERATE(1, 2, 3, 5);
  const int32_t unit_tiles = GENERATE(0, 8, 32);
  INFO(n_tiles << " tiles, units of " << unit_tiles);
  std::vector<PrefillTile> tiles;
  for (int32_t t = 0; t < n_tiles; ++t) {
    tiles.push_back({.seq = 0, .first_row = t * 128, .first_key_tile = 0, .end_key_tile = 470});
  }
  const auto [most, all] = MostAndAll(Checked(
      tiles, {.n_blocks = 132, .n_kv_heads = 8, .unit_tiles = unit_tiles, .max_states = 1 << 20}));
  // Cuts only between units balance less evenly.
  CHECK(static_cast<double>(most) <
        (unit_tiles == 32 ? 1.7 : 1.3) * static_cast<double>(all) / 132);
}

TEST_CASE("prefill parts: tiles are not split if splitting gains little") {
  // The first case has as many segments as CTAs, the second has short segments.
  for (const int32_t n_keys : {470, 3}) {
    std::vector<PrefillTile> tiles;
    for (int32_t t = 0; t < (n_keys == 3 ? 20 : 33); ++t) tiles.push_back({t, 0, 0, n_keys});
    const PrefillShares shares =
        Checked(tiles, {.n_blocks = 132, .n_kv_heads = 4, .max_states = 528});
    CHECK(shares.merges.empty());
  }
  CHECK(Checked({{0, 0, 0, 5}}, {.n_blocks = 132, .n_kv_heads = 8, .max_states = 528})
            .merges.empty());
}

TEST_CASE("prefill parts: the number of states stays within its limit") {
  const PrefillShares shares =
      Checked({{0, 0, 0, 500}, {1, 0, 0, 480}},
              {.n_blocks = 64, .n_kv_heads = 2, .unit_tiles = 8, .max_states = 70});
  CHECK(!shares.merges.empty());
  CHECK(shares.merges.size() < 4);
  CHECK(Checked({{0, 0, 0, 500}}, {.n_blocks = 64, .n_kv_heads = 2}).merges.empty());
}

TEST_CASE("prefill parts: random batches") {
  std::mt19937 random(GENERATE(Catch::Generators::range(0, 40)));
  const auto from = [&](int32_t least, int32_t most) {
    return std::uniform_int_distribution<int32_t>(least, most)(random);
  };
  const PrefillShape shape{.n_blocks = from(1, 140),
                           .n_kv_heads = from(1, 8),
                           .unit_tiles = from(0, 1) * from(1, 40),
                           .max_states = from(0, 600)};
  std::vector<PrefillTile> tiles;
  const int32_t n_seqs = from(1, 12);
  for (int32_t s = 0; s < n_seqs; ++s) {
    const int32_t longest = from(0, 3) == 0 ? 600 : 20;
    const int32_t n = from(1, 4);
    for (int32_t t = 0; t < n; ++t) {
      const int32_t first = from(0, 1) * from(0, longest);
      tiles.push_back({s, t * 96, first, first + from(1, longest)});
    }
  }
  Checked(tiles, shape);
}

}  // namespace
}  // namespace stagecoach::kernels::cuda
