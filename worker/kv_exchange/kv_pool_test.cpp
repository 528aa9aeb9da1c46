#include "worker/kv_exchange/kv_pool.h"

#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "worker/kv_exchange/testing/numbered_blocks.h"

namespace stagecoach::worker {
namespace {

KvPool PoolOf(uint32_t n) { return KvPool(HostBytes(n * 128 + 5), TwoParts()); }

// Keeps block number i.
void Put(KvPool& pool, int i) {
  const KvPool::Places places = pool.Take(1);
  REQUIRE(places.size() == 1);
  FillBlock(pool, places[0], i);
  pool.Keep(places[0], BlockName(i));
}

// Whether the pool has block number i; checks its contents, and counts it as used.
bool Has(KvPool& pool, int i) {
  const KvPool::Place place = pool.Find(BlockName(i));
  if (!place.valid()) return false;
  CheckBlock(pool, place, i);
  return true;
}

TEST_CASE("KV pool: what was used longest ago gives way") {
  KvPool pool = PoolOf(3);
  for (int i = 0; i < 3; ++i) Put(pool, i);
  CHECK(Has(pool, 0));
  Put(pool, 3);
  CHECK_FALSE(Has(pool, 1));
  for (const int i : {0, 2, 3}) CHECK(Has(pool, i));
  CHECK(pool.n_kept() == 3);
}

TEST_CASE("KV pool: of blocks that are released together, the last one gives way first") {
  KvPool pool = PoolOf(4);
  {
    const KvPool::Places places = pool.Take(4);
    for (int i = 0; i < 4; ++i) {
      FillBlock(pool, places[static_cast<size_t>(i)], i);
      pool.Keep(places[static_cast<size_t>(i)], BlockName(i));
    }
  }
  Put(pool, 10);
  Put(pool, 11);
  CHECK_FALSE(pool.Has(BlockName(3)));
  CHECK_FALSE(pool.Has(BlockName(2)));
  CHECK(Has(pool, 0));
  CHECK(Has(pool, 1));
}

TEST_CASE("KV pool: held places are not overwritten, and places differ") {
  KvPool pool = PoolOf(4);
  Put(pool, 1);
  std::optional<KvPool::Place> held = pool.Find(BlockName(1));
  const KvPool::Place again = pool.Find(BlockName(1));
  CHECK(held->index() == again.index());
  {
    const KvPool::Places rest = pool.Take(9);
    CHECK(rest.size() == 3);
    std::set<uint32_t> indices = {held->index()};
    for (size_t i = 0; i < rest.size(); ++i) indices.insert(rest[i].index());
    CHECK(indices.size() == 4);
    CHECK(pool.Take(1).empty());
  }
  held.reset();
  CHECK(pool.Take(4).size() == 3);  // the block is still held
  CheckBlock(pool, again, 1);
}

TEST_CASE("KV pool: places that were not kept are free again") {
  KvPool pool = PoolOf(2);
  for (int i = 0; i < 5; ++i) CHECK(pool.Take(2).size() == 2);
  CHECK(pool.n_kept() == 0);
}

TEST_CASE("KV pool: a name belongs to the first place that has it") {
  KvPool pool = PoolOf(3);
  Put(pool, 1);
  const uint32_t first = pool.Find(BlockName(1)).index();
  Put(pool, 1);
  CHECK(pool.Find(BlockName(1)).index() == first);
  CHECK(pool.n_kept() == 1);
  CHECK(pool.Take(3).size() == 3);
  CHECK_FALSE(pool.Has(BlockName(1)));
}

TEST_CASE("KV pool: tokens are compared, not only keys") {
  KvPool pool = PoolOf(1);
  Put(pool, 1);
  KvBlockName other = BlockName(1);
  other.tokens[3] = 77;
  CHECK_FALSE(pool.Find(other).valid());
  CHECK(Has(pool, 1));
}

}  // namespace
}  // namespace stagecoach::worker
