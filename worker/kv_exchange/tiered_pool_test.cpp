#include "worker/kv_exchange/tiered_pool.h"

#include <catch2/catch_test_macros.hpp>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/closable_queue.h"
#include "worker/kv_exchange/testing/numbered_blocks.h"

namespace stagecoach::worker {
namespace {

using Clock = KvStore::Clock;

// Its first write waits for the test. Tells the deadline of each write.
class HeldStore final : public KvStore {
 public:
  std::string name() const override { return "held"; }
  absl::StatusOr<std::vector<std::optional<std::string>>> Get(std::span<const KvKey> keys,
                                                              Clock::time_point) override {
    return std::vector<std::optional<std::string>>(keys.size());
  }
  absl::StatusOr<std::vector<bool>> Has(std::span<const KvKey> keys, Clock::time_point) override {
    return std::vector<bool>(keys.size());
  }
  absl::Status Put(std::span<const KvValue>, Clock::time_point deadline) override {
    deadlines.Push(deadline).IgnoreError();
    go_on.wait();
    return absl::OkStatus();
  }

  ClosableQueue<Clock::time_point> deadlines;
  std::latch go_on{1};
};

TEST_CASE("all tiers of a pool have the same seconds at the end") {
  const auto disk = std::make_shared<HeldStore>(), store = std::make_shared<HeldStore>();
  const auto source = [](const std::shared_ptr<HeldStore>& held) {
    return KvTier::Source{
        .open = [held] { return held; },
        .guard = std::make_shared<KvStoreGuard>(std::make_shared<KvStoreCounters>())};
  };
  auto pool = TieredPool::Open(HostBytes(1024), TwoParts(),
                               {.disk = source(disk), .store = source(store)}, /*n_fetchers=*/1);
  REQUIRE(pool.ok());
  for (int i = 0; i < 2; ++i) {
    KvSaving saving = (*pool)->TakeForSave(1);
    REQUIRE(saving.size() == 1);
    FillBlock((*pool)->pool(), saving[0], i);
    (*pool)->Save(std::move(saving), {BlockName(i)});
  }
  for (const auto& held : {disk, store}) REQUIRE(held->deadlines.Pop().ok());
  (*pool)->Close();
  const Clock::time_point last = Clock::now() + std::chrono::seconds(4);
  for (const auto& held : {disk, store}) held->go_on.count_down();
  for (const auto& held : {disk, store}) {
    const auto deadline = held->deadlines.Pop();
    REQUIRE(deadline.ok());
    CHECK(*deadline <= last);
  }
}

}  // namespace
}  // namespace stagecoach::worker
