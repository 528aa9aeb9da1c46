// Which events KvBlocks publishes about the blocks that it remembers.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/testing/core_pipeline.h"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

constexpr uint32_t kBlock = kBlockTokens;

struct Listener final : KvEventSink {
  bool Publish(KvEvents events) override {
    if (!has_room) return false;
    batches.push_back(std::move(events));
    return true;
  }
  bool HasRoom() override { return has_room; }

  bool has_room = true;
  std::vector<KvEvents> batches;
};

// What an indexer knows from the events.
struct Index {
  struct Block {
    std::optional<uint64_t> parent;
    std::vector<int32_t> tokens;
    bool operator==(const Block&) const = default;
  };

  void Read(Listener& listener) {
    for (const KvEvents& events : std::exchange(listener.batches, {})) {
      CHECK_FALSE(events.empty());
      for (const KvEvent& event : events) std::visit([this](const auto& e) { Apply(e); }, event);
    }
  }
  void Apply(const KvBlocksStored& stored) {
    REQUIRE(stored.tokens.size() == stored.hashes.size() * kBlock);
    std::optional<uint64_t> parent = stored.parent;
    for (size_t i = 0; i < stored.hashes.size(); ++i) {
      const auto first = stored.tokens.begin() + static_cast<ptrdiff_t>(i * kBlock);
      CHECK(blocks.emplace(stored.hashes[i], Block{parent, {first, first + kBlock}}).second);
      parent = stored.hashes[i];
    }
  }
  void Apply(const KvBlocksRemoved& removed) {
    for (const uint64_t hash : removed.hashes) CHECK(blocks.erase(hash) == 1);
  }
  void Apply(const KvCacheCleared&) { blocks.clear(); }

  // The first blocks of `tokens` that are known.
  size_t NFound(std::span<const int32_t> tokens) const {
    std::optional<uint64_t> parent;
    size_t n = 0;
    for (; tokens.size() >= kBlock; tokens = tokens.subspan(kBlock), ++n) {
      const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const auto& block) {
        return block.second.parent == parent &&
               std::ranges::equal(block.second.tokens, tokens.first(kBlock));
      });
      if (found == blocks.end()) break;
      parent = found->first;
    }
    return n;
  }

  std::map<uint64_t, Block> blocks;
};

struct Holding {
  explicit Holding(KvBlocks& kv) : kv(kv), tables(static_cast<size_t>(kv.n_groups())) {}
  void Compute(std::span<const int32_t> tokens, uint64_t step = 1, const std::string& salt = "") {
    if (tables.front().ids.empty()) kv.Adopt(salt, tokens, tables, prefix);
    v1::SlotDelta delta;
    kv.Grow(tables, static_cast<uint32_t>(tokens.size()), delta);
    kv.Remember(salt, tokens, tables, prefix, step);
    kv.ReturnBehindWindows(tables, static_cast<uint32_t>(tokens.size()));
  }
  void Return() { kv.ReturnAll(tables, prefix); }

  KvBlocks& kv;
  BlockTables tables;
  RememberedPrefix prefix;
};

struct Told {
  explicit Told(const std::vector<SchedulerConfig::KvGroup>& groups)
      : kv(groups, /*max_chunk_tokens=*/200, /*remembers=*/true, /*kv_scope=*/"",
           {.sink = &listener, .scope = "model"}) {}
  void Publish() {
    kv.PublishEvents();
    index.Read(listener);
  }

  Listener listener;
  KvBlocks kv;
  Index index;
};

TEST_CASE("KV events: a hash is the end of a block's key, with the highest bit set") {
  BlockKey key{};
  CHECK(EventHash(key) == uint64_t{1} << 63);
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(i);
  CHECK(EventHash(key) == 0x88090a0b0c0d0e0f);
}

TEST_CASE("KV events: blocks that follow one another are one event, with their parent and tokens") {
  Told told({{.window = 0, .n_blocks = 20}});
  Holding one(told.kv);
  const auto tokens = TokenRange(size_t{3} * kBlock + 5);
  one.Compute(std::span(tokens).first(size_t{2} * kBlock));
  told.kv.PublishEvents();
  one.Compute(tokens);
  told.kv.PublishEvents();
  told.kv.PublishEvents();  // nothing has happened
  REQUIRE(told.listener.batches.size() == 2);
  const BlockKey first = ChildBlockKey(RootBlockKey("model", ""), TokenRange(kBlock));
  const BlockKey second = ChildBlockKey(first, TokenRange(kBlock, kBlock));
  const BlockKey third = ChildBlockKey(second, TokenRange(kBlock, 2 * kBlock));
  CHECK(told.listener.batches[0] ==
        KvEvents{KvBlocksStored{.hashes = {EventHash(first), EventHash(second)},
                                .parent = std::nullopt,
                                .tokens = TokenRange(size_t{2} * kBlock)}});
  CHECK(told.listener.batches[1] ==
        KvEvents{KvBlocksStored{.hashes = {EventHash(third)},
                                .parent = EventHash(second),
                                .tokens = TokenRange(kBlock, 2 * kBlock)}});
}

TEST_CASE("KV events: what is shared is told once, and what is overwritten is removed") {
  Told told({{.window = 0, .n_blocks = 6}});
  const auto tokens = TokenRange(size_t{4} * kBlock);
  Holding one(told.kv), two(told.kv);
  one.Compute(tokens);
  told.Publish();
  two.Compute(tokens);
  CHECK(told.listener.batches.empty());
  one.Return();
  two.Return();
  told.kv.PublishEvents();
  CHECK(told.listener.batches.empty());  // the blocks are free, but still remembered
  CHECK(told.index.NFound(tokens) == 4);

  Holding other(told.kv);
  const auto others = TokenRange(size_t{4} * kBlock, 1000);
  other.Compute(others);  // takes the free blocks, and the end of the first sequence
  told.Publish();
  CHECK(told.index.NFound(others) == 4);
  CHECK(told.index.NFound(tokens) ==
        told.kv.NAdoptable("", TokenRange(size_t{4} * kBlock + 1)) / kBlock);
  CHECK(told.index.NFound(tokens) < 4);
  CHECK(told.index.blocks.size() == 4 + told.index.NFound(tokens));
}

TEST_CASE("KV events: nothing is told of blocks under a salt") {
  Told told({{.window = 0, .n_blocks = 4}});
  Holding salted(told.kv);
  salted.Compute(TokenRange(size_t{4} * kBlock), 1, "salt");
  told.kv.PublishEvents();
  salted.Return();
  Holding other(told.kv);
  other.Compute(TokenRange(size_t{4} * kBlock));
  told.Publish();
  CHECK(told.index.blocks.size() == 4);
  CHECK(told.index.NFound(TokenRange(size_t{4} * kBlock)) == 4);
}

TEST_CASE("KV events: with windows, they tell of the group with full attention") {
  Told told({{.window = 20, .n_blocks = 40}, {.window = 0, .n_blocks = 40}});
  Holding one(told.kv);
  const auto tokens = TokenRange(size_t{10} * kBlock);
  for (size_t n = 1; n <= 10; ++n) one.Compute(std::span(tokens).first(n * kBlock));
  told.Publish();
  CHECK(told.index.NFound(tokens) == 10);
  CHECK(told.index.blocks.size() == 10);
}

TEST_CASE("KV events: blocks of steps that never happened are removed") {
  Told told({{.window = 0, .n_blocks = 10}});
  Holding one(told.kv);
  const auto tokens = TokenRange(size_t{4} * kBlock);
  one.Compute(std::span(tokens).first(size_t{2} * kBlock), 1);
  one.Compute(tokens, 2);
  told.Publish();
  told.kv.ForgetAfter(1);
  told.Publish();
  CHECK(told.index.NFound(tokens) == 2);
  CHECK(told.index.blocks.size() == 2);
}

TEST_CASE("KV events: a lost cache is one event, and what follows is told anew") {
  Told told({{.window = 0, .n_blocks = 10}});
  const auto tokens = TokenRange(size_t{4} * kBlock);
  Holding one(told.kv);
  one.Compute(tokens);
  told.Publish();
  one.Return();
  told.kv.ForgetAll();
  told.kv.PublishEvents();
  REQUIRE(told.listener.batches.size() == 1);
  CHECK(told.listener.batches[0] == KvEvents{KvCacheCleared{}});
  one.Compute(tokens);
  told.Publish();
  CHECK(told.index.NFound(tokens) == 4);
}

TEST_CASE("KV events: after a loss of events, the whole cache is told anew") {
  Told told({{.window = 0, .n_blocks = 10}});
  const auto tokens = TokenRange(size_t{4} * kBlock);
  auto others = tokens;
  others[size_t{2} * kBlock] = -1;
  Holding one(told.kv), other(told.kv), salted(told.kv);
  one.Compute(tokens);
  told.Publish();
  told.listener.has_room = false;
  other.Compute(others);
  salted.Compute(TokenRange(kBlock), 1, "salt");
  told.kv.PublishEvents();
  told.kv.PublishEvents();
  CHECK(told.listener.batches.empty());
  told.listener.has_room = true;
  told.kv.PublishEvents();
  REQUIRE(told.listener.batches.size() == 1);
  CHECK(std::holds_alternative<KvCacheCleared>(told.listener.batches[0].front()));
  told.index.Read(told.listener);
  CHECK(told.index.blocks.size() == 6);
  CHECK(told.index.NFound(tokens) == 4);
  CHECK(told.index.NFound(others) == 4);
}

TEST_CASE("KV events: a scheduler tells what its sequences can adopt, until it is lost for good") {
  Listener listener;
  SchedulerConfig config = SmallConfig(2, 64);
  config.kv_events = {.sink = &listener, .scope = "model"};
  CorePipeline pipeline(config);
  Index index;
  for (SequenceId id = 1; id <= 20; ++id) pipeline.Submit(MakeRequest(id, 100, 30));
  pipeline.RunToEnd();
  pipeline.core.PublishKvEvents();
  index.Read(listener);
  const KvBlocks& kv = pipeline.core.state().kv();
  for (SequenceId id = 1; id <= 20; ++id) {
    const auto prompt = *MakeRequest(id, 100, 1)->prompt;
    CHECK(index.NFound(prompt) == kv.NAdoptable("", prompt) / kBlock);
  }
  CHECK_FALSE(index.blocks.empty());
  pipeline.core.Down(absl::UnavailableError("lost"));
  pipeline.core.PublishKvEvents();
  index.Read(listener);
  CHECK(index.blocks.empty());
}

TEST_CASE("KV events: they need the prefix cache") {
  Listener listener;
  SchedulerConfig config = SmallConfig(1, 64);
  config.kv_events = {.sink = &listener, .scope = "model"};
  CHECK(ValidateConfig(config).ok());
  config.prefix_cache = false;
  CHECK_FALSE(ValidateConfig(config).ok());
}

}  // namespace
}  // namespace stagecoach::router
