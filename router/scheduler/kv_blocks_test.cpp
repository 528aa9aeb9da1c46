#include "router/scheduler/kv_blocks.h"

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

TEST_CASE("A pool hands out every id once and takes them back") {
  BlockPool pool(5);
  std::vector<uint32_t> ids;
  while (pool.n_free() > 0) ids.push_back(pool.Take());
  REQUIRE(ids == std::vector<uint32_t>{0, 1, 2, 3, 4});
  pool.Return(3);
  REQUIRE(pool.n_free() == 1);
  REQUIRE(pool.Take() == 3);
  pool.Return(ids);
  REQUIRE(pool.n_free() == 5);
}

TEST_CASE("Tables grow by what positions lack, in every group") {
  KvBlocks kv({{.window = 0, .n_blocks = 10}, {.window = 8, .n_blocks = 4}}, 32);
  BlockTables tables(2);
  REQUIRE(kv.Reach(tables) == 64);
  v1::SlotDelta delta;
  kv.Grow(tables, 17, delta);
  REQUIRE(delta.new_blocks_size() == 2);
  REQUIRE(delta.new_blocks(0).ids_size() == 2);
  REQUIRE(delta.new_blocks(1).ids_size() == 2);
  v1::SlotDelta none;
  kv.Grow(tables, 32, none);
  REQUIRE(none.new_blocks_size() == 0);
  REQUIRE(kv.n_free(0) == 8);
  kv.ReturnAll(tables);
  REQUIRE(kv.n_free(0) == 10);
  REQUIRE(kv.n_free(1) == 4);
}

TEST_CASE("A window keeps exactly the blocks that the next row can see") {
  // The row at position p sees (p - window, p].
  for (uint32_t window : {1u, 15u, 16u, 17u, 40u}) {
    KvBlocks kv({{.window = static_cast<int32_t>(window), .n_blocks = 32}}, 1);
    BlockTables tables(1);
    for (uint32_t next = 1; next <= 300; ++next) {
      v1::SlotDelta delta;
      kv.Grow(tables, next, delta);
      REQUIRE(tables[0].n_held() <= kv.MostHeld(0, next));
      kv.ReturnBehindWindows(tables, next);
      const uint32_t first_seen = next + 1 > window ? next + 1 - window : 0;
      REQUIRE(tables[0].n_returned ==
              std::min<uint32_t>(first_seen / kBlockTokens, BlocksFor(next)));
    }
    kv.ReturnAll(tables);
    REQUIRE(kv.n_free(0) == 32);
  }
}

TEST_CASE("MostHeld is reached by the worst chunk and never passed") {
  for (uint32_t window : {1u, 2u, 16u, 33u, 64u}) {
    for (uint32_t chunk : {1u, 2u, 16u, 17u, 50u}) {
      KvBlocks kv({{.window = static_cast<int32_t>(window), .n_blocks = 200}}, chunk);
      uint32_t most = 0;
      for (uint32_t first = 1; first <= 16 + chunk; ++first) {  // every alignment
        BlockTables tables(1);
        for (uint32_t end = first; end < 1000; end += chunk) {
          v1::SlotDelta delta;
          kv.Grow(tables, end, delta);
          if (end > first) most = std::max(most, tables[0].n_held());
          kv.ReturnBehindWindows(tables, end);
        }
        kv.ReturnAll(tables);
      }
      REQUIRE(most == kv.MostHeld(0, 1000));
    }
  }
}

TEST_CASE("The free fraction is that of the scarcest group") {
  KvBlocks kv({{.window = 0, .n_blocks = 10}, {.window = 8, .n_blocks = 4}}, 32);
  BlockTables tables(2);
  v1::SlotDelta delta;
  kv.Grow(tables, 32, delta);
  REQUIRE(kv.FreeFraction() == 0.5);
}

}  // namespace
}  // namespace stagecoach::router
