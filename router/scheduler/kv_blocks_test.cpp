#include "router/scheduler/kv_blocks.h"

#include <string>

#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

TEST_CASE("A pool gives out every id once and takes ids back, cached blocks are reused last") {
  BlockPool pool(5);
  std::vector<uint32_t> ids;
  while (pool.n_free() > 0) ids.push_back(pool.Take().id);
  REQUIRE(ids == std::vector<uint32_t>{0, 1, 2, 3, 4});
  pool.Return(3, /*keep=*/false);
  REQUIRE(pool.n_free() == 1);
  REQUIRE(pool.Take().id == 3);
  for (uint32_t id : {4u, 0u, 2u}) pool.Return(id, /*keep=*/true);
  pool.Return(1, /*keep=*/false);
  REQUIRE(pool.n_free() == 4);
  pool.Share(0);  // no longer free
  pool.Share(0);
  pool.Return(0, /*keep=*/true);
  REQUIRE(pool.n_free() == 3);
  REQUIRE(pool.Take().id == 1);
  const BlockPool::Taken longest_free = pool.Take();
  REQUIRE(longest_free.id == 4);
  REQUIRE(longest_free.was_kept);
  pool.Return(0, /*keep=*/true);
  REQUIRE(pool.Take().id == 2);
  REQUIRE(pool.Take().id == 0);
  REQUIRE(pool.n_free() == 0);
}

TEST_CASE("Tables grow by the missing positions, in every group") {
  KvBlocks kv({{.window = 0, .n_blocks = 10}, {.window = 8, .n_blocks = 4}}, 32);
  BlockTables tables(2);
  RememberedPrefix prefix;
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
  kv.ReturnAll(tables, prefix);
  REQUIRE(kv.n_free(0) == 10);
  REQUIRE(kv.n_free(1) == 4);
}

TEST_CASE("A window keeps exactly the blocks that the next row sees") {
  for (const KeyWindow window : std::initializer_list<KeyWindow>{
           1, 15, 16, 17, 40, {1, true}, {15, true}, {16, true}, {40, true}}) {
    KvBlocks kv({{.window = window, .n_blocks = 32}}, 1);
    BlockTables tables(1);
    RememberedPrefix prefix;
    for (uint32_t next = 1; next <= 300; ++next) {
      v1::SlotDelta delta;
      kv.Grow(tables, next, delta);
      REQUIRE(tables[0].n_held() <= kv.MostHeld(0, next));
      kv.ReturnBehindWindows(tables, next);
      const auto first_seen = static_cast<uint32_t>(window.First(static_cast<int32_t>(next)));
      REQUIRE(tables[0].n_returned ==
              std::min<uint32_t>(first_seen / kBlockTokens, BlocksFor(next)));
    }
    kv.ReturnAll(tables, prefix);
    REQUIRE(kv.n_free(0) == 32);
  }
}

TEST_CASE("The worst chunk reaches MostHeld, and no chunk exceeds it") {
  for (uint32_t window : {1u, 2u, 16u, 33u, 64u}) {
    for (uint32_t chunk : {1u, 2u, 16u, 17u, 50u}) {
      // Decodes in flight hold more than such small chunks.
      const uint32_t n_in_flight = chunk > kMostDecodes ? 0 : kMostDecodes;
      KvBlocks kv({{.window = static_cast<int32_t>(window), .n_blocks = 200}}, chunk);
      uint32_t most = 0;
      for (uint32_t first = 1; first <= 16 + chunk; ++first) {  // every alignment
        BlockTables tables(1);
        RememberedPrefix prefix;
        for (uint32_t end = first; end < 1000; end += n_in_flight > 0 ? 1 : chunk) {
          v1::SlotDelta delta;
          kv.Grow(tables, end, delta);
          if (end > first) most = std::max(most, tables[0].n_held());
          kv.ReturnBehindWindows(tables, end - std::min(end, n_in_flight));
        }
        kv.ReturnAll(tables, prefix);
      }
      REQUIRE(most == kv.MostHeld(0, 1000));
    }
  }
}

// A sequence that holds blocks.
struct Holder {
  explicit Holder(KvBlocks& kv) : kv(kv), tables(static_cast<size_t>(kv.n_groups())) {}
  // Computes `tokens`, or continues up to them, and remembers them. Returns the number of adopted
  // tokens.
  uint32_t Compute(std::span<const int32_t> tokens, const std::string& salt = "") {
    const uint32_t n_adopted = tables[0].ids.empty() ? kv.Adopt(salt, tokens, tables, prefix) : 0;
    delta = {};
    kv.Grow(tables, static_cast<uint32_t>(tokens.size()), delta);
    kv.Remember(salt, tokens, tables, prefix, step);
    kv.ReturnBehindWindows(tables, static_cast<uint32_t>(tokens.size()));
    return n_adopted;
  }
  void Return() { kv.ReturnAll(tables, prefix); }

  KvBlocks& kv;
  BlockTables tables;
  RememberedPrefix prefix;
  v1::SlotDelta delta;
  uint64_t step = 1;  // that computes its blocks
};

TEST_CASE("A prefix match reuses full blocks, whether or not a sequence still holds them") {
  KvBlocks kv({{.window = 0, .n_blocks = 10}}, 64);
  Holder first(kv), second(kv), third(kv);
  REQUIRE(first.Compute(TokenRange(40)) == 0);
  REQUIRE(kv.MostTakenOfNew("", TokenRange(50), 51, {}) == std::vector<uint32_t>{2});
  KvBlocks::Holds firsts;
  kv.CountHolds(first.tables, firsts);
  REQUIRE(kv.NFreed(0, firsts) == 3);
  REQUIRE(kv.MostTakenOfNew("", TokenRange(50), 51, firsts) == std::vector<uint32_t>{4});
  REQUIRE(second.Compute(TokenRange(50)) == 32);
  REQUIRE(second.tables[0].ids[1] == first.tables[0].ids[1]);
  REQUIRE(second.tables[0].ids[2] != first.tables[0].ids[2]);
  REQUIRE(second.delta.new_blocks(0).ids_size() == 4);  // the plan names all blocks
  REQUIRE(kv.n_free(0) == 5);
  REQUIRE(kv.NFreed(0, firsts) == 1);
  first.Return();
  second.Return();
  REQUIRE(kv.n_free(0) == 10);
  REQUIRE(kv.MostTakenOfNew("", TokenRange(50), 51, {}) == std::vector<uint32_t>{4});
  REQUIRE(third.Compute(TokenRange(49)) == 48);
  REQUIRE(kv.n_free(0) == 6);
  third.Return();
}

TEST_CASE("A prefix match leaves at least one token, and needs the same tokens and salt") {
  KvBlocks kv({{.window = 0, .n_blocks = 20}}, 64);
  Holder first(kv), same(kv), other(kv), salted(kv), later(kv);
  first.Compute(TokenRange(32));
  REQUIRE(same.Compute(TokenRange(32)) == 16);
  REQUIRE(other.Compute(TokenRange(32, 1)) == 0);
  REQUIRE(salted.Compute(TokenRange(32), "b") == 0);
  auto tokens = TokenRange(48);
  tokens[20] = 7;
  REQUIRE(later.Compute(tokens) == 16);
  for (Holder* holder : {&first, &same, &other, &salted, &later}) holder->Return();
  REQUIRE(kv.n_free(0) == 20);
}

TEST_CASE("Reused blocks leave the prefix cache, the end of a prefix first") {
  KvBlocks kv({{.window = 0, .n_blocks = 6}}, 128);
  Holder first(kv), second(kv), third(kv);
  first.Compute(TokenRange(64));
  first.Return();
  second.Compute(TokenRange(64, 100));  // takes two unused blocks and two kept ones
  second.Return();
  REQUIRE(third.Compute(TokenRange(65)) == 32);
  third.Return();
  REQUIRE(kv.n_free(0) == 6);
}

TEST_CASE("With a window, a prefix match needs only the blocks inside the window") {
  KvBlocks kv({{.window = 0, .n_blocks = 20}, {.window = 20, .n_blocks = 20}}, 200);
  Holder first(kv), second(kv), other(kv);
  first.Compute(TokenRange(100));
  first.Return();
  // In the window group, the blocks of tokens 0 .. 63 are behind the window, but not reused yet.
  REQUIRE(second.Compute(TokenRange(80)) == 64);
  REQUIRE(second.tables[1].n_returned == 3);
  second.Return();
  // Reuses all of the window group's blocks except the last few.
  KvBlocks few({{.window = 0, .n_blocks = 20}, {.window = 20, .n_blocks = 10}}, 200);
  Holder long_one(few), next(few), again(few);
  for (size_t n = 16; n <= 112; n += 16) long_one.Compute(TokenRange(n));
  long_one.Return();
  next.Compute(TokenRange(90, 1000));
  next.Return();
  const uint32_t n_adopted = again.Compute(TokenRange(113));
  REQUIRE((n_adopted == 112 || n_adopted == 0));
  again.Return();
}

TEST_CASE("Behind a window only unshared blocks become free") {
  KvBlocks kv({{.window = 64, .n_blocks = 100}}, 32);
  Holder first(kv), second(kv);
  for (uint32_t n = 32; n <= 160; n += 32) first.Compute(TokenRange(n));
  const uint32_t most = kv.MostHeld(0, 1000);
  REQUIRE(kv.MostTaken(0, first.tables[0], 1000) == most - first.tables[0].n_held());
  // 10 blocks are adopted; the window group has four of them. Adopted blocks do not reduce the
  // maximum.
  REQUIRE(kv.MostTakenOfNew("", TokenRange(161), 1000, {}) == std::vector<uint32_t>{most});
  REQUIRE(second.Compute(TokenRange(161)) == 160);
  REQUIRE(kv.MostTaken(0, second.tables[0], 1000) == most - 1);
  REQUIRE(kv.MostTaken(0, second.tables[0], 180) == 1);
  first.Return();
  second.Return();
}

TEST_CASE("A block that was returned before its tokens were known is not cached") {
  KvBlocks kv({{.window = 1, .n_blocks = 4}}, 64);
  Holder first(kv), second(kv);
  kv.Grow(first.tables, 16, first.delta);
  kv.ReturnBehindWindows(first.tables, 16);
  REQUIRE(first.tables[0].n_held() == 0);
  kv.Remember("", TokenRange(16), first.tables, first.prefix, 1);
  second.Compute(TokenRange(40, 100));  // takes that block too, and fills it with its own tokens
  second.Return();
  first.Return();
  REQUIRE(second.Compute(TokenRange(40, 100)) == 32);
  second.Return();
}

TEST_CASE("Blocks that steps in flight fill are forgotten, whether or not they are held") {
  KvBlocks kv({{.window = 0, .n_blocks = 20}}, 64);
  Holder done(kv), held(kv), gone(kv);
  done.Compute(TokenRange(40));
  held.step = gone.step = 2;
  held.Compute(TokenRange(40, 100));
  gone.Compute(TokenRange(40, 200));
  gone.Return();
  kv.ForgetAfter(1);
  CHECK(kv.NAdoptable("", TokenRange(41)) == 32);
  CHECK(kv.NAdoptable("", TokenRange(41, 100)) == 0);
  CHECK(kv.NAdoptable("", TokenRange(41, 200)) == 0);
  held.Return();
  done.Return();
  CHECK(kv.n_free(0) == 20);
}

TEST_CASE("What is taken back is sent, remembered and taken again") {
  KvBlocks kv({{.window = 0, .n_blocks = 20}, {.window = 20, .n_blocks = 20}}, 64);
  Holder holder(kv);
  holder.Compute(TokenRange(30));
  holder.step = 2;
  holder.Compute(TokenRange(50));
  kv.ForgetAfter(1);
  REQUIRE(kv.TakeBack(holder.tables, holder.prefix, 40));
  CHECK(holder.tables[0].ids.size() == 3);
  CHECK(kv.n_free(0) == 17);
  CHECK(kv.NAdoptable("", TokenRange(50)) == 16);
  holder.Compute(TokenRange(50));
  CHECK(holder.delta.new_blocks(0).ids_size() == 4);
  CHECK(kv.NAdoptable("", TokenRange(50)) == 48);
  // Positions from 30 on read blocks that the window has left behind.
  CHECK_FALSE(kv.TakeBack(holder.tables, holder.prefix, 30));
  holder.Return();
}

TEST_CASE("Nothing is cached if the prefix cache is off") {
  KvBlocks kv({{.window = 0, .n_blocks = 10}}, 64, /*remembers=*/false);
  Holder first(kv), second(kv);
  first.Compute(TokenRange(40));
  REQUIRE(second.Compute(TokenRange(40)) == 0);
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
