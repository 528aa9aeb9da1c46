// Which blocks KvBlocks saves to the KV store, and which it restores from there.
#include <algorithm>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

constexpr char kScope[] = "model";
constexpr uint32_t kNone = PrefixTree::kNoBlock;

KvBlocks WithStore(const std::vector<SchedulerConfig::KvGroup>& groups) {
  return {groups, /*max_chunk_tokens=*/200, /*remembers=*/true, kScope};
}

// A sequence that holds blocks.
struct Holding {
  explicit Holding(KvBlocks& kv) : kv(kv), tables(static_cast<size_t>(kv.n_groups())) {}
  void Compute(std::span<const int32_t> tokens, uint64_t step) {
    v1::SlotDelta delta;
    kv.Grow(tables, static_cast<uint32_t>(tokens.size()), delta);
    kv.Remember("", tokens, tables, prefix, step);
  }
  // Returns the number of blocks in the tables.
  uint32_t Restore(std::span<const int32_t> tokens, uint32_t first, uint32_t end) {
    kv.Adopt("", tokens, tables, prefix);
    const uint32_t n = kv.Restore({.fetch = 9, .first = first, .end = end}, tables,
                                  *plan.mutable_restores(), marks);
    kv.Remember("", tokens.first(n * kBlockTokens), tables, prefix, 1, KvBlocks::Source::kStore);
    return n;
  }
  void Return() { kv.ReturnAll(tables, prefix); }

  KvBlocks& kv;
  BlockTables tables;
  RememberedPrefix prefix;
  StateMarks marks;
  v1::StepPlan plan;
};

v1::StepPlan SavesOf(KvBlocks& kv, uint64_t step) {
  v1::StepPlan plan;
  kv.TakeSaves(step, plan);
  return plan;
}

std::vector<uint32_t> BlocksOf(const v1::KvRestore& restore) {
  return {restore.blocks().begin(), restore.blocks().end()};
}

TEST_CASE("A plan saves the full blocks that the steps before it have computed, once") {
  KvBlocks kv = WithStore({{.window = 0, .n_blocks = 20}, {.window = 20, .n_blocks = 20}});
  Holding first(kv), second(kv);
  first.Compute(TokenRange(40), 1);
  CHECK(SavesOf(kv, 1).saves().empty());
  second.Compute(TokenRange(50), 2);  // two blocks are the same, and the third is new
  const v1::StepPlan plan = SavesOf(kv, 2);
  REQUIRE(plan.saves_size() == 2);
  const BlockKey key = ChildBlockKey(RootBlockKey(kScope, ""), TokenRange(16));
  CHECK(plan.saves(0).key() == BytesOf(key));
  CHECK(plan.saves(1).key() == BytesOf(ChildBlockKey(key, TokenRange(16, 16))));
  CHECK(std::ranges::equal(plan.saves(1).tokens(), TokenRange(16, 16)));
  CHECK(plan.saves(1).blocks(0) == first.tables[0].ids[1]);
  CHECK(plan.saves(1).blocks(1) == first.tables[1].ids[1]);
  CHECK(kv.has_saves());
  CHECK(SavesOf(kv, 3).saves_size() == 1);
  CHECK_FALSE(kv.has_saves());
  CHECK(kv.n_saved() == 3);
  first.Return();
  second.Return();
}

TEST_CASE("Without a scope nothing is saved") {
  KvBlocks kv({{.window = 0, .n_blocks = 20}}, 64);
  Holding one(kv);
  one.Compute(TokenRange(40), 1);
  CHECK_FALSE(kv.has_saves());
  one.Return();
}

TEST_CASE("Blocks that a window has left behind, and those of lost steps, are not saved") {
  KvBlocks kv = WithStore({{.window = 0, .n_blocks = 20}, {.window = 20, .n_blocks = 20}});
  Holding one(kv);
  v1::SlotDelta delta;
  kv.Grow(one.tables, 48, delta);
  kv.ReturnBehindWindows(one.tables, 48);
  kv.Remember("", TokenRange(48), one.tables, one.prefix, 1);
  CHECK(SavesOf(kv, 2).saves_size() == 2);
  one.Compute(TokenRange(80), 2);
  REQUIRE(kv.has_saves());
  kv.ForgetAfter(1);
  CHECK_FALSE(kv.has_saves());
  one.Return();
}

TEST_CASE("It asks for the full blocks that the prefix cache lacks, but leaves a token") {
  KvBlocks kv = WithStore({{.window = 0, .n_blocks = 20}});
  Holding one(kv);
  v1::KvFetch all, rest;
  CHECK(kv.AskForMissing("", TokenRange(64), all) == 0);
  CHECK(all.keys_size() == 3);
  one.Compute(TokenRange(20), 1);
  CHECK(kv.AskForMissing("", TokenRange(65), rest) == 1);
  REQUIRE(rest.keys_size() == 3);
  CHECK(rest.keys(0) == all.keys(1));
  CHECK(std::ranges::equal(rest.tokens(), TokenRange(48, 16)));
  v1::KvFetch salted;
  kv.AskForMissing("b", TokenRange(64), salted);
  CHECK(salted.keys(0) != all.keys(0));
  one.Return();
}

TEST_CASE("Restored blocks follow adopted ones, are adopted by others, and are not saved again") {
  KvBlocks kv = WithStore({{.window = 0, .n_blocks = 20}});
  Holding one(kv), two(kv), three(kv);
  one.Compute(TokenRange(20), 1);
  SavesOf(kv, 2);
  CHECK(two.Restore(TokenRange(70), 1, 4) == 4);
  REQUIRE(two.plan.restores_size() == 3);
  for (uint32_t i = 0; i < 3; ++i) {
    const v1::KvRestore& restore = two.plan.restores(static_cast<int>(i));
    CHECK(restore.fetch() == 9);
    CHECK(restore.index() == i);
    CHECK(BlocksOf(restore) == std::vector<uint32_t>{two.tables[0].ids[i + 1]});
  }
  CHECK_FALSE(kv.has_saves());
  CHECK(kv.Adopt("", TokenRange(70), three.tables, three.prefix) == 64);
  CHECK(three.tables[0].ids == two.tables[0].ids);
  for (Holding* holding : {&one, &two, &three}) holding->Return();
  CHECK(kv.n_free(0) == 20);
}

TEST_CASE("Nothing is restored behind a gap, or if the prefix cache has as much by now") {
  KvBlocks kv = WithStore({{.window = 0, .n_blocks = 20}});
  Holding gap(kv), computed(kv), late(kv);
  CHECK(gap.Restore(TokenRange(70), 1, 4) == 0);
  computed.Compute(TokenRange(70), 1);
  CHECK(late.Restore(TokenRange(70), 1, 4) == 4);
  CHECK(gap.plan.restores().empty());
  CHECK(late.plan.restores().empty());
  for (Holding* holding : {&gap, &computed, &late}) holding->Return();
}

TEST_CASE("If blocks are short, fewer are restored, and one is left for the next row") {
  KvBlocks kv = WithStore({{.window = 0, .n_blocks = 10}, {.window = 64, .n_blocks = 5}});
  Holding one(kv), two(kv);
  v1::SlotDelta delta;
  kv.Grow(one.tables, 16, delta);  // 9 and 4 are free
  // In the window group, the row behind 4 or more blocks reads 4 of them, and takes one itself.
  CHECK(two.Restore(TokenRange(200), 0, 12) == 3);
  CHECK(two.plan.restores_size() == 3);
  CHECK(kv.n_free(0) == 6);
  CHECK(kv.n_free(1) == 1);
  one.Return();
  two.Return();
}

TEST_CASE("A window group gets only the restored blocks that the next row reads") {
  KvBlocks kv = WithStore({{.window = 0, .n_blocks = 20}, {.window = 20, .n_blocks = 10}});
  Holding one(kv), two(kv);
  one.Compute(TokenRange(40), 1);
  one.Return();
  // Two blocks are adopted, and none of them is inside the window after the restored ones.
  CHECK(two.Restore(TokenRange(100), 2, 6) == 6);
  REQUIRE(two.plan.restores_size() == 4);
  CHECK(two.tables[1].n_returned == 4);
  CHECK(two.tables[1].n_held() == 2);
  CHECK(two.plan.restores(1).blocks(1) == kNone);
  CHECK(two.plan.restores(2).blocks(1) == two.tables[1].ids[4]);
  CHECK(two.plan.restores(1).blocks(0) == two.tables[0].ids[3]);
  CHECK(kv.n_free(1) == 8);
  two.Return();
  CHECK(kv.n_free(1) == 10);
}

TEST_CASE("Blocks that no group reads are not restored") {
  KvBlocks kv = WithStore({{.window = 20, .n_blocks = 10}});
  Holding one(kv);
  CHECK(one.Restore(TokenRange(100), 0, 6) == 6);
  REQUIRE(one.plan.restores_size() == 2);
  CHECK(one.plan.restores(0).index() == 4);
  one.Return();
}

}  // namespace
}  // namespace stagecoach::router
