// GroupPairs against sorting on the host.
#include "kernels/cuda/experts/expert_rows.h"

#include <algorithm>
#include <random>

#include "kernels/cuda/testing/device_values.h"
#include "kernels/cuda/testing/ops_stream.h"

namespace stagecoach::kernels {
namespace {

// A third of the experts have most pairs, and the last one has none.
std::vector<int32_t> RandomExperts(int32_t n_pairs, int32_t n_experts) {
  std::mt19937 random(3);
  std::vector<int32_t> experts(static_cast<size_t>(n_pairs));
  for (int32_t& expert : experts) {
    const uint32_t n = random() % 4 == 0 ? n_experts - 1 : n_experts / 3 + 1;
    expert = static_cast<int32_t>(random() % n);
  }
  return experts;
}

// Tiles of at most kMaxRunTiles * kTileRows rows make a run.
constexpr int32_t kTileRows = 16;

TEST_CASE("GroupPairs: few pairs and many") {
  const auto ops = NewCudaOps();
  const cuda::Stream stream = StreamOf(*ops, 1000);
  for (const auto& [n_pairs, n_experts] :
       {std::pair{1, 2}, {500, 128}, {8192, 7}, {8193, 128}, {20'000, 3}, {30'000, 1024}}) {
    INFO(n_pairs << " pairs, " << n_experts << " experts");
    const std::vector<int32_t> experts = RandomExperts(n_pairs, n_experts);
    const auto empty = [](int64_t n) { return std::vector<int32_t>(static_cast<size_t>(n), -1); };
    const Ids chosen(*ops, experts), order(*ops, empty(n_pairs)), places(*ops, empty(n_pairs));
    const Ids n_tiles(*ops, empty(1));
    const Ids counts(*ops, empty(int64_t{cuda::GroupingParts(n_pairs)} * n_experts));
    const int64_t most_tiles = n_pairs / kTileRows + n_experts;
    const Ids tiles(*ops, empty(most_tiles * 4));
    REQUIRE(cuda::GroupPairs(stream, {.experts = chosen.data(),
                                      .n_pairs = n_pairs,
                                      .n_experts = n_experts,
                                      .tile_rows = kTileRows,
                                      .n_tiles = n_tiles.data(),
                                      .groups = nullptr,
                                      .tiles = reinterpret_cast<cuda::RowTile*>(tiles.data()),
                                      .counts = counts.data(),
                                      .order = order.data(),
                                      .places = places.data()}) == cudaSuccess);
    const std::vector<int32_t> sorted = order.Get(), of_pairs = places.Get();
    bool is_order = true;  // every pair has one place, and the experts are in ascending order
    for (int32_t place = 0; place < n_pairs; ++place) {
      const int32_t pair = sorted[static_cast<size_t>(place)];
      is_order = is_order && pair >= 0 && pair < n_pairs &&
                 of_pairs[static_cast<size_t>(pair)] == place &&
                 (place == 0 || experts[static_cast<size_t>(sorted[place - 1])] <= experts[pair]);
    }
    CHECK(is_order);

    const std::vector<int32_t> found = tiles.Get();
    int32_t tile = 0, first_row = 0;
    bool is_list = true;
    for (int32_t e = 0; e < n_experts; ++e) {
      const auto n = static_cast<int32_t>(std::count(experts.begin(), experts.end(), e));
      for (int32_t row = 0; row < n; row += kTileRows, ++tile) {
        const int32_t before = row / kTileRows / cuda::kMaxRunTiles * cuda::kMaxRunTiles;
        const int32_t expected[] = {
            e, first_row + before * kTileRows,
            std::min(n - before * kTileRows, cuda::kMaxRunTiles * kTileRows),
            tile - row / kTileRows + before};
        is_list = is_list && std::equal(expected, expected + 4, found.begin() + int64_t{4} * tile);
      }
      first_row += n;
    }
    CHECK(is_list);
    CHECK(n_tiles.Get().front() == tile);
  }
}

}  // namespace
}  // namespace stagecoach::kernels
