#include "worker/kv_exchange/kv_host_tier.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <memory>
#include <vector>

#include "worker/kv_exchange/testing/numbered_blocks.h"

namespace stagecoach::worker {
namespace {

// Whether the tier has block number i; checks its contents, and counts it as used.
bool Has(KvHostTier& tier, KvMemory& memory, const std::vector<KvPart>& parts, int i) {
  const KvBlocks to(memory.TakeUpTo(1), &parts);
  if (!tier.Get(BlockName(i), to, 0)) return false;
  tier.Touch(BlockName(i));
  CheckBlock(to, parts, 0, i);
  return true;
}

TEST_CASE("The host tier gives back what it got, and drops what was used longest ago") {
  const std::vector<KvPart> parts = TwoParts();
  KvMemory memory(HostBytes(10 * KvBlockBytes(parts)), KvBlockBytes(parts));
  KvHostTier tier(3 * KvBlockBytes(parts) + 5, &parts);
  KvBlocks blocks(memory.TakeUpTo(5), &parts);
  for (int i = 0; i < 5; ++i) FillBlock(blocks, parts, static_cast<uint32_t>(i), i);
  for (int i = 0; i < 3; ++i) tier.Put(BlockName(i), blocks, static_cast<uint32_t>(i));
  CHECK(tier.n_blocks() == 3);
  CHECK(Has(tier, memory, parts, 0));
  tier.Put(BlockName(3), blocks, 3);
  CHECK_FALSE(Has(tier, memory, parts, 1));
  tier.Put(BlockName(0), blocks, 0);  // again
  tier.Put(BlockName(4), blocks, 4);
  CHECK_FALSE(Has(tier, memory, parts, 2));
  for (const int i : {0, 3, 4}) CHECK(Has(tier, memory, parts, i));
  CHECK(tier.n_blocks() == 3);
}

TEST_CASE("The host tier compares tokens, not only keys") {
  const std::vector<KvPart> parts = TwoParts();
  KvMemory memory(HostBytes(2 * KvBlockBytes(parts)), KvBlockBytes(parts));
  KvHostTier tier(KvBlockBytes(parts), &parts);
  const KvBlocks blocks(memory.TakeUpTo(1), &parts);
  FillBlock(blocks, parts, 0, 1);
  tier.Put(BlockName(1), blocks, 0);
  KvBlockName other = BlockName(1);
  other.tokens[3] = 77;
  CHECK_FALSE(tier.Get(other, blocks, 0));
  CHECK(tier.Get(BlockName(1), blocks, 0));
}

}  // namespace
}  // namespace stagecoach::worker
