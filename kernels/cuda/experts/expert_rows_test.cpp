// GroupPairs against sorting on the host.
#include "kernels/cuda/experts/expert_rows.h"

#include <algorithm>
#include <cstring>
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

template <typename Group>
std::vector<Group> GroupsIn(const Ids& ids, int32_t n) {
  const std::vector<int32_t> values = ids.Get();
  std::vector<Group> groups(static_cast<size_t>(n));
  std::memcpy(groups.data(), values.data(), groups.size() * sizeof(Group));
  return groups;
}

TEST_CASE("SelectGroups: groups and tiles of some matrices") {
  const auto ops = NewCudaOps();
  const cuda::Stream stream = StreamOf(*ops, 1000);
  // {matrix, first row, rows} and {matrix, first row, rows, first tile}; matrix 2 has none.
  const Ids groups(*ops, {0, 0, 16, 0, 16, 3, 1, 19, 5, 3, 24, 16, 4, 40, 1});
  const Ids tiles(*ops, {0, 0, 19, 0, 0, 0, 19, 0, 1, 19, 5, 2, 3, 24, 16, 3, 4, 40, 1, 4});
  const Ids n_groups(*ops, {5}), n_selected(*ops, {-1});
  struct Case {
    int32_t first, n_matrices, begin, end;  // of the groups
  };
  for (const auto& [first, n_matrices, begin, end] :
       {Case{0, 1, 0, 2}, {0, 5, 0, 5}, {1, 2, 2, 3}, {2, 1, 3, 3}, {3, 2, 3, 5}, {4, 9, 4, 5}}) {
    INFO("matrices " << first << " to " << first + n_matrices - 1);
    const Ids selected_groups(*ops, std::vector<int32_t>(15, -1));
    const Ids selected_tiles(*ops, std::vector<int32_t>(20, -1));
    cuda::SelectGroupsArgs args{
        .groups = reinterpret_cast<const cuda::RowGroup*>(groups.data()),
        .tiles = nullptr,
        .n_groups = n_groups.data(),
        .max_groups = 5,
        .first = first,
        .n_matrices = n_matrices,
        .selected_groups = reinterpret_cast<cuda::RowGroup*>(selected_groups.data()),
        .selected_tiles = reinterpret_cast<cuda::RowTile*>(selected_tiles.data()),
        .n_selected = n_selected.data()};
    REQUIRE(cuda::SelectGroups(stream, args) == cudaSuccess);
    REQUIRE(n_selected.Get().front() == end - begin);
    args.groups = nullptr;
    args.tiles = reinterpret_cast<const cuda::RowTile*>(tiles.data());
    REQUIRE(cuda::SelectGroups(stream, args) == cudaSuccess);
    CHECK(n_selected.Get().front() == end - begin);
    const auto all_groups = GroupsIn<cuda::RowGroup>(groups, 5);
    const auto all_tiles = GroupsIn<cuda::RowTile>(tiles, 5);
    const auto some_groups = GroupsIn<cuda::RowGroup>(selected_groups, 5);
    const auto some_tiles = GroupsIn<cuda::RowTile>(selected_tiles, 5);
    for (int32_t i = begin; i < end; ++i) {
      const cuda::RowGroup &group = some_groups[static_cast<size_t>(i - begin)],
                           &of_all = all_groups[static_cast<size_t>(i)];
      CHECK((group.matrix + first == of_all.matrix && group.first_row == of_all.first_row &&
             group.n_rows == of_all.n_rows));
      const cuda::RowTile &tile = some_tiles[static_cast<size_t>(i - begin)],
                          &tile_of_all = all_tiles[static_cast<size_t>(i)];
      CHECK((tile.matrix + first == tile_of_all.matrix && tile.first_row == tile_of_all.first_row &&
             tile.n_rows == tile_of_all.n_rows &&
             tile.first_tile + begin == tile_of_all.first_tile));
    }
  }
}

}  // namespace
}  // namespace stagecoach::kernels
