#include "kernels/cuda/attention/decode_shares.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <random>
#include <utility>

namespace stagecoach::kernels::cuda {
namespace {

std::vector<int32_t> StartsOf(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts = {0};
  for (const int32_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

std::vector<DecodeShare> SharesOf(const std::vector<int32_t>& lengths, int32_t n_passes,
                                  const DecodeShape& shape) {
  std::vector<DecodeShare> shares(static_cast<size_t>(shape.n_blocks));
  ShareDecodes(StartsOf(lengths), n_passes, shape, shares);
  return shares;
}

// Checks that every KV block of every segment is in one share, and that shares name the right CTAs
// for segments with several parts.
void CheckShares(const std::vector<int32_t>& lengths, int32_t n_passes, const DecodeShape& shape) {
  const std::vector<DecodeShare> shares = SharesOf(lengths, n_passes, shape);
  struct Part {
    int32_t owner, first_block, n_kv_blocks, said_first_owner, said_parts;
  };
  std::map<std::pair<int32_t, int32_t>, std::vector<Part>> segments;
  for (size_t i = 0; i < shares.size(); ++i) {
    const DecodeShare& share = shares[i];
    const auto owner = static_cast<int32_t>(i);
    int32_t decode = share.first_decode, pass = share.first_pass, block = share.first_block;
    int32_t left = share.n_kv_blocks, n_segments = 0;
    while (left > 0) {
      const int32_t n = std::min(left, lengths[static_cast<size_t>(decode)] - block);
      const bool is_first = n_segments == 0, is_last = n == left;
      segments[{decode, pass}].push_back({owner, block, n, is_first ? share.first_owner : owner,
                                          is_first  ? share.first_parts
                                          : is_last ? share.last_parts
                                                    : 1});
      left -= n;
      block = 0;
      ++n_segments;
      if (++pass == n_passes) {
        pass = 0;
        ++decode;
      }
    }
    CHECK(n_segments == share.n_segments);
  }
  CHECK(segments.size() == lengths.size() * static_cast<size_t>(n_passes));
  for (const auto& [segment, parts] : segments) {
    int32_t next = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      CHECK(parts[i].first_block == next);
      CHECK(parts[i].owner == parts[0].owner + static_cast<int32_t>(i));
      CHECK(parts[i].said_first_owner == parts[0].owner);
      CHECK(parts[i].said_parts == static_cast<int32_t>(parts.size()));
      next += parts[i].n_kv_blocks;
    }
    CHECK(next == lengths[static_cast<size_t>(segment.first)]);
  }
}

TEST_CASE("decode shares cover every segment once") {
  std::mt19937 random(GENERATE(1, 2, 3, 4, 5, 6));
  const auto up_to = [&](int32_t n) { return static_cast<int32_t>(random() % n) + 1; };
  const int32_t longest = GENERATE(1, 30, 500);
  for (int i = 0; i < 20; ++i) {
    std::vector<int32_t> lengths(static_cast<size_t>(up_to(40)));
    for (int32_t& length : lengths) length = up_to(longest);
    CheckShares(lengths, up_to(8), {.n_blocks = up_to(100), .n_warps = i % 2 == 0 ? 4 : 12});
  }
}

TEST_CASE("decode shares: with few sequences, segments stay whole or are split evenly") {
  const auto used = [](const std::vector<DecodeShare>& shares) {
    std::vector<int32_t> sizes;
    for (const DecodeShare& share : shares) {
      if (share.n_kv_blocks > 0) sizes.push_back(share.n_kv_blocks);
    }
    return sizes;
  };
  const DecodeShape few{.n_blocks = 132, .n_warps = 12};
  CHECK(used(SharesOf({16}, 8, few)) == std::vector<int32_t>(8, 16));
  CHECK(used(SharesOf({25, 25}, 8, few)) == std::vector<int32_t>(16, 25));
  CHECK(used(SharesOf({72}, 8, few)) == std::vector<int32_t>(16, 36));
  // A sequence that is far longer than the others must be cut, so that no CTA waits for it.
  const std::vector<int32_t> uneven = used(SharesOf({900, 1, 1, 1, 1, 1, 1, 1, 1}, 8, few));
  CHECK(*std::max_element(uneven.begin(), uneven.end()) < 80);
  const DecodeShape many{.n_blocks = 396, .n_warps = 4};
  const std::vector<int32_t> even = used(SharesOf(std::vector<int32_t>(256, 25), 8, many));
  CHECK(even.size() == 396);
  CHECK(*std::max_element(even.begin(), even.end()) == 130);
}

TEST_CASE("decode shares: the heads of each L2 side get half of the CTAs") {
  const std::vector<int32_t> lengths = {7, 40, 1, 90};
  const int32_t n_blocks = GENERATE(396, 9);
  const auto shares = SharesOf(lengths, 8, {.n_blocks = n_blocks, .n_warps = 4, .n_sides = 2});
  const int32_t n_first = (n_blocks + 1) / 2;
  for (const int32_t side : {0, 1}) {
    const int32_t first = side * n_first, n = side == 0 ? n_first : n_blocks - n_first;
    const auto expected = SharesOf(lengths, 4, {.n_blocks = n, .n_warps = 4});
    for (int32_t i = 0; i < n; ++i) {
      const DecodeShare& share = shares[static_cast<size_t>(first + i)];
      const DecodeShare& alone = expected[static_cast<size_t>(i)];
      CHECK(share.n_kv_blocks == alone.n_kv_blocks);
      CHECK(share.first_decode == alone.first_decode);
      CHECK(share.first_pass == alone.first_pass);
      CHECK(share.first_owner == alone.first_owner + first);
    }
  }
}

TEST_CASE("decode shares: a step without decodes has no shares") {
  for (const DecodeShare& share : SharesOf({}, 8, {.n_blocks = 5, .n_warps = 4})) {
    CHECK(share.n_kv_blocks == 0);
  }
}

}  // namespace
}  // namespace stagecoach::kernels::cuda
