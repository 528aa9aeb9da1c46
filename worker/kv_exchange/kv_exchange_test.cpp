#include "worker/kv_exchange/kv_exchange.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/closable_queue.h"
#include "common/temp_dir.h"
#include "kernels/reference/reference_ops.h"
#include "worker/kv_exchange/testing/numbered_blocks.h"

namespace stagecoach::worker {
namespace {

constexpr uint64_t kBlockBytes = 128;

struct Fixture {
  explicit Fixture(KvExchange::Config config, std::vector<KvPart> parts = TwoParts(),
                   std::vector<KvPart> state_parts = {}) {
    if (config.host_bytes == 0) config.host_bytes = kBlockBytes * 64;
    auto started = KvExchange::Start(config, std::move(parts), std::move(state_parts), ops.get());
    INFO(started.status());
    REQUIRE(started.ok());
    exchange = *std::move(started);
    Begin();
  }
  void Begin() {
    exchange->BeginEpoch(
        [this](v1::KvFetched fetched) { answers.Push(std::move(fetched)).IgnoreError(); });
  }
  // Saves blocks [first, first + n); returns how many of them had room.
  uint32_t Save(int first, uint32_t n) {
    KvSaving places = exchange->blocks()->TakeForSave(n);
    std::vector<KvBlockName> names;
    for (size_t b = 0; b < places.size(); ++b) {
      const int i = first + static_cast<int>(b);
      names.push_back(BlockName(i));
      FillBlock(exchange->blocks()->pool(), places[b], i);
    }
    const auto n_taken = static_cast<uint32_t>(places.size());
    exchange->blocks()->Save(std::move(places), std::move(names));
    return n_taken;
  }
  v1::KvFetched FetchAll(uint64_t id, int first, int n) {
    v1::KvFetch fetch;
    fetch.set_id(id);
    for (int i = first; i < first + n; ++i) {
      const KvBlockName name = BlockName(i);
      fetch.add_keys(name.key.data(), name.key.size());
      fetch.mutable_tokens()->Add(name.tokens.begin(), name.tokens.end());
    }
    exchange->Fetch(std::move(fetch));
    const auto answer = answers.Pop();
    REQUIRE(answer.ok());
    CHECK(answer->id() == id);
    return *answer;
  }
  uint32_t Fetch(uint64_t id, int first, int n) { return FetchAll(id, first, n).n_blocks(); }
  void CheckFetched(uint64_t id, int first, uint32_t n) {
    const auto fetched = exchange->Fetched(id);
    REQUIRE(fetched != nullptr);
    CHECK(fetched->blocks.size() == n);
    for (size_t b = 0; b < n; ++b) {
      CheckBlock(exchange->blocks()->pool(), fetched->blocks[b], first + static_cast<int>(b));
    }
  }

  std::unique_ptr<kernels::Ops> ops = kernels::MakeReferenceOps();
  ClosableQueue<v1::KvFetched> answers;
  std::unique_ptr<KvExchange> exchange;
};

TEST_CASE(
    "KV exchange: what one server saves, another fetches, up to the first block that is missing") {
  TempDir dir;
  {
    Fixture saver({.store = "dir:" + dir.path()});
    CHECK(saver.Save(0, 20) == 20);
    CHECK(saver.Save(30, 3) == 3);
  }  // its end saves what is queued
  Fixture other({.store = "dir:" + dir.path()});
  CHECK(other.Fetch(1, 0, 25) == 20);
  other.CheckFetched(1, 0, 20);
  CHECK(other.Fetch(2, 29, 4) == 0);
  CHECK(other.exchange->Fetched(2) == nullptr);
  CHECK(other.Fetch(3, 30, 3) == 3);
  other.CheckFetched(3, 30, 3);
  other.exchange->Forget(1);
  CHECK(other.exchange->Fetched(1) == nullptr);
  const v1::KvStoreStats stats = other.exchange->Stats();
  CHECK(stats.fetched_blocks() == 23);
  CHECK(stats.missed_blocks() == 5 + 4);
  CHECK(stats.corrupt_values() == 0);
}

TEST_CASE("KV exchange: stages with other splits of the layers read the same blocks") {
  TempDir dir;
  {
    Fixture({.store = "dir:" + dir.path()}).Save(0, 4);
  }
  Fixture second_layer({.store = "dir:" + dir.path()}, {TwoParts()[1]});
  CHECK(second_layer.Fetch(1, 0, 4) == 4);
  const auto fetched = second_layer.exchange->Fetched(1);
  CHECK(second_layer.exchange->blocks()->pool().bytes(fetched->blocks[2], 0)[5] == BlockByte(2, 1));
  Fixture other_layers({.store = "dir:" + dir.path()}, TwoParts(4));  // layer 5 was never saved
  CHECK(other_layers.Fetch(1, 0, 4) == 0);
}

TEST_CASE("KV exchange: memory is bounded; what does not fit is dropped, or not fetched") {
  TempDir dir;
  {
    Fixture({.store = "dir:" + dir.path()}).Save(0, 12);
  }
  Fixture fixture({.host_bytes = kBlockBytes * 8, .store = "dir:" + dir.path()});
  CHECK(fixture.Fetch(1, 0, 12) == 8);
  CHECK(fixture.Fetch(2, 8, 4) == 0);  // the first one holds all memory
  CHECK(fixture.Save(20, 5) == 0);
  CHECK(fixture.exchange->Stats().dropped_blocks() == 5);
  fixture.exchange->Forget(1);
  CHECK(fixture.Fetch(3, 8, 4) == 4);
  fixture.CheckFetched(3, 8, 4);
}

TEST_CASE("KV exchange: what is being saved holds half of the memory at most") {
  TempDir dir;
  Fixture fixture({.host_bytes = kBlockBytes * 8, .store = "dir:" + dir.path()});
  const KvSaving places = fixture.exchange->blocks()->TakeForSave(6);
  CHECK(places.size() == 4);
  CHECK(fixture.exchange->blocks()->TakeForSave(1).empty());
  CHECK(fixture.exchange->Stats().dropped_blocks() == 3);
  CHECK(fixture.exchange->Stats().waiting_blocks() == 4);
}

TEST_CASE("KV exchange: blocks whose step was lost hold no memory") {
  TempDir dir;
  Fixture fixture({.host_bytes = kBlockBytes * 8, .store = "dir:" + dir.path()});
  for (int i = 0; i < 3; ++i) CHECK(fixture.exchange->blocks()->TakeForSave(6).size() == 4);
  CHECK(fixture.exchange->Stats().waiting_blocks() == 0);
}

TEST_CASE("KV exchange: damaged and foreign entries are misses") {
  TempDir dir;
  {
    Fixture({.store = "dir:" + dir.path()}).Save(0, 6);
  }
  int n_files = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir.path())) {
    if (file.is_regular_file() && ++n_files > 0 &&
        file.path().string().find("02020202") != std::string::npos) {
      std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) - 1);
    }
  }
  CHECK(n_files == 12);
  Fixture fixture({.store = "dir:" + dir.path()});
  CHECK(fixture.Fetch(1, 0, 6) == 2);
  fixture.CheckFetched(1, 0, 2);
  CHECK(fixture.exchange->Stats().corrupt_values() == 1);
}

TEST_CASE("KV exchange: the end of an epoch forgets its fetches, and their answers do not come") {
  TempDir dir;
  {
    Fixture({.store = "dir:" + dir.path()}).Save(0, 6);
  }
  Fixture fixture({.host_bytes = kBlockBytes * 6, .store = "dir:" + dir.path()});
  CHECK(fixture.Fetch(1, 0, 6) == 6);
  fixture.exchange->EndEpoch();
  CHECK(fixture.exchange->Fetched(1) == nullptr);
  v1::KvFetch late;
  late.set_id(2);
  fixture.exchange->Fetch(late);  // belongs to no epoch
  fixture.Begin();
  CHECK(fixture.Fetch(1, 0, 6) == 6);  // the memory is free again
  CHECK(fixture.answers.size() == 0);
}

TEST_CASE("KV exchange: host memory serves alone, for as many blocks as it holds") {
  Fixture fixture({.host_bytes = kBlockBytes * 8});
  CHECK(fixture.Save(0, 8) == 8);
  CHECK(fixture.Fetch(1, 0, 8) == 8);
  fixture.CheckFetched(1, 0, 8);
  fixture.exchange->Forget(1);
  CHECK(fixture.exchange->Stats().from_host_blocks() == 8);
  CHECK(fixture.exchange->Stats().host_blocks() == 8);
  CHECK(fixture.Save(20, 4) == 4);
  CHECK(fixture.Fetch(2, 20, 4) == 4);
  CHECK(fixture.Fetch(3, 0, 8) == 4);  // the last ones gave way
  CHECK(fixture.exchange->Stats().host_blocks() == 8);
}

TEST_CASE("KV exchange: what comes from the store stays in host memory") {
  TempDir dir;
  {
    Fixture({.store = "dir:" + dir.path()}).Save(0, 6);
  }
  Fixture fixture({.host_bytes = kBlockBytes * 8, .store = "dir:" + dir.path()});
  CHECK(fixture.FetchAll(1, 0, 6).n_host_blocks() == 0);
  std::filesystem::remove_all(dir.path());
  const v1::KvFetched fetched = fixture.FetchAll(2, 0, 6);
  CHECK(fetched.n_blocks() == 6);
  CHECK(fetched.n_host_blocks() == 6);
  fixture.CheckFetched(2, 0, 6);
  CHECK(fixture.exchange->Stats().from_host_blocks() == 6);
}

TEST_CASE("KV exchange: host memory, disk and store complete one another") {
  TempDir disk, store;
  {
    Fixture({.disk = disk.path() + ":1MiB"}).Save(2, 3);
  }
  {
    Fixture({.store = "dir:" + store.path()}).Save(0, 8);
  }
  Fixture fixture({.disk = disk.path() + ":1MiB", .store = "dir:" + store.path()});
  CHECK(fixture.Save(0, 2) == 2);
  const v1::KvFetched fetched = fixture.FetchAll(1, 0, 9);
  CHECK(fetched.n_blocks() == 8);
  CHECK(fetched.n_host_blocks() == 2);
  CHECK(fetched.n_disk_blocks() == 3);
  fixture.CheckFetched(1, 0, 8);
  CHECK(fixture.exchange->Stats().from_disk_blocks() == 3);
}

TEST_CASE("KV exchange: blocks are computed where that is known to be faster than reading them") {
  TempDir dir;
  {
    Fixture({.store = "dir:" + dir.path()}).Save(0, 32);
  }
  Fixture fixture({.store = "dir:" + dir.path()});
  fixture.exchange->Computed(1, 1e-9);     // a decode says nothing
  CHECK(fixture.Fetch(1, 0, 16) == 16);    // nothing is known of either
  fixture.exchange->Computed(2048, 1e-9);  // in no time
  CHECK(fixture.Fetch(2, 16, 16) == 0);
  CHECK(fixture.Fetch(3, 0, 20) == 16);  // host memory is as fast as ever
}

TEST_CASE("KV exchange: a malformed fetch is answered with nothing") {
  TempDir dir;
  Fixture fixture({.store = "dir:" + dir.path()});
  v1::KvFetch fetch;
  fetch.set_id(5);
  fetch.add_keys("short");
  fixture.exchange->Fetch(fetch);
  CHECK(fixture.answers.Pop()->n_blocks() == 0);
}

// A state of two recurrent layers, beside the layers of TwoParts.
std::vector<KvPart> TwoStateParts() {
  return {{.layer = 2, .bytes = 200}, {.layer = 5, .bytes = 200}};
}

struct WithStates : Fixture {
  explicit WithStates(KvExchange::Config config)
      : Fixture(std::move(config), TwoParts(), TwoStateParts()) {}

  // Saves the state at the end of block i, with the bytes of block 50 + i.
  void SaveState(int i) {
    KvSaving places = exchange->states()->TakeForSave(1);
    REQUIRE(places.size() == 1);
    FillBlock(exchange->states()->pool(), places[0], 50 + i);
    exchange->states()->Save(std::move(places), {OfState(BlockName(i))});
  }
  // Fetches blocks 0 to n - 1. Returns how many come, with the state at their end.
  uint32_t FetchWithState(uint64_t id, int n) {
    const v1::KvFetched answer = FetchAll(id, 0, n);
    CHECK(answer.ends_at_state() == (answer.n_blocks() > 0));
    if (answer.n_blocks() == 0) {
      CHECK(exchange->Fetched(id) == nullptr);
      return 0;
    }
    CheckFetched(id, 0, answer.n_blocks());
    const int last = static_cast<int>(answer.n_blocks()) - 1;
    CheckBlock(exchange->states()->pool(), exchange->Fetched(id)->state, 50 + last);
    return answer.n_blocks();
  }
};

// For 10 states; those that are being written may take half of them.
constexpr uint64_t kHostBytes = 10 * (128 * kBlockBytes + 400);

TEST_CASE("KV exchange: a fetch ends at the last state that a tier has") {
  const TempDir dir;
  for (const char* const tier : {"host", "disk", "store"}) {
    CAPTURE(tier);
    const std::string path = dir.File(tier);
    KvExchange::Config config{.host_bytes = kHostBytes};
    if (tier == std::string("disk")) config.disk = path;
    if (tier == std::string("store")) config.store = "dir:" + path;
    auto saver = std::make_unique<WithStates>(config);
    saver->Save(0, 10);
    saver->SaveState(3);
    saver->SaveState(7);
    std::unique_ptr<WithStates> other;
    if (tier != std::string("host")) {
      saver.reset();  // its end saves what is queued
      other = std::make_unique<WithStates>(config);
    }
    WithStates& reader = other ? *other : *saver;
    CHECK(reader.FetchWithState(1, 10) == 8);
    CHECK(reader.FetchWithState(2, 7) == 4);
    CHECK(reader.FetchWithState(3, 3) == 0);
    CHECK(reader.exchange->Stats().fetched_states() == 2);
    CHECK(reader.exchange->Stats().host_states() == 2);
  }
}

TEST_CASE("KV exchange: a state of which a block before is missing is of no use") {
  WithStates fixture({.host_bytes = kHostBytes});
  fixture.Save(0, 6);
  fixture.SaveState(3);
  fixture.SaveState(7);
  CHECK(fixture.FetchWithState(1, 10) == 4);
}

TEST_CASE("KV exchange: a state that is damaged in the store is left out") {
  TempDir dir;
  const KvExchange::Config config{.host_bytes = kHostBytes, .store = "dir:" + dir.path()};
  {
    WithStates saver(config);
    saver.Save(0, 10);
    saver.SaveState(3);
    saver.SaveState(7);
  }
  size_t n_damaged = 0;
  const std::string name = HexBlock({.block = OfState(BlockName(7)).key, .layer = 0});
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path())) {
    if (!entry.path().filename().string().starts_with(name)) continue;
    std::filesystem::resize_file(entry.path(), 20);
    ++n_damaged;
  }
  REQUIRE(n_damaged == 2);
  WithStates reader(config);
  CHECK(reader.FetchWithState(1, 10) == 4);
  CHECK(reader.exchange->Stats().corrupt_values() > 0);
}

TEST_CASE("KV exchange: a stage may have no part of a block, or nothing at all") {
  Fixture states({.host_bytes = 4000}, {}, TwoStateParts());
  CHECK(states.exchange->blocks() == nullptr);
  KvSaving places = states.exchange->states()->TakeForSave(1);
  states.exchange->states()->Save(std::move(places), {OfState(BlockName(3))});
  const v1::KvFetched answer = states.FetchAll(1, 0, 9);
  CHECK(answer.n_blocks() == 4);
  CHECK(answer.ends_at_state());
  CHECK(states.exchange->Fetched(1)->state.valid());

  Fixture nothing({.host_bytes = 4000}, {});
  CHECK(nothing.Fetch(1, 0, 9) == 9);
  CHECK(nothing.exchange->Stats().host_blocks() == 0);
}

TEST_CASE("KV exchange: host memory has a state for 128 blocks, and at least one") {
  const WithStates least({.host_bytes = kBlockBytes + 400});
  CHECK(least.exchange->states()->pool().n_total() == 1);
  CHECK(least.exchange->blocks()->pool().n_total() == 1);
  const WithStates more({.host_bytes = kHostBytes});
  CHECK(more.exchange->states()->pool().n_total() == 10);
  CHECK(more.exchange->blocks()->pool().n_total() == 1280);
}

TEST_CASE("KV exchange: a store that cannot be reached is named once at the start") {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  spdlog::set_pattern("%l: %v");
  {
    // Nobody listens there.
    const Fixture fixture({.store = "redis://user:hidden@127.0.0.1:1"}, TwoParts(),
                          {{.layer = 2, .bytes = 200}});
  }
  spdlog::set_default_logger(before);
  const std::string text = log.str();
  const std::string warning = "warning: KV store redis://127.0.0.1:1/0 cannot be used now";
  CHECK(text.find(warning) != std::string::npos);
  CHECK(text.find(warning) == text.rfind(warning));
  CHECK(text.find("hidden") == std::string::npos);
}

TEST_CASE("KV exchange: a bad URL, or memory for less than a block, is refused") {
  const auto ops = kernels::MakeReferenceOps();
  const auto problem = [&](const KvExchange::Config& config) {
    const absl::Status status = KvExchange::Start(config, TwoParts(), {}, ops.get()).status();
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  CHECK(problem({.host_bytes = 4096, .store = "ftp:x"}).starts_with("--kv-store: "));
  CHECK(problem({.host_bytes = 4096, .disk = ":1GiB"}).starts_with("--disk-kv: "));
  CHECK(problem({.host_bytes = 127}).starts_with("--host-kv "));
  // A file has the block, its heads, and is counted in whole pages.
  const TempDir dir;
  const std::string disk = dir.File("disk");
  CHECK(problem({.host_bytes = 4096, .disk = disk + ":2KiB", .n_local = 2}) ==
        "--disk-kv: this worker's share of SIZE, 1.0 KiB, is less than a KV block of this stage, "
        "4.0 KiB");
  CHECK(problem({.host_bytes = 4096, .disk = disk + ":8191", .n_local = 2})
            .starts_with("--disk-kv: "));
  CHECK(KvExchange::Start({.host_bytes = 4096, .disk = disk + ":8192", .n_local = 2}, TwoParts(),
                          {}, ops.get())
            .ok());
  // A block and a state.
  CHECK(
      absl::IsInvalidArgument(KvExchange::Start({.host_bytes = kHostBytes, .disk = disk + ":8191"},
                                                TwoParts(), TwoStateParts(), ops.get())
                                  .status()));
  CHECK(absl::IsInvalidArgument(
      KvExchange::Start({.host_bytes = 527}, TwoParts(), TwoStateParts(), ops.get()).status()));
}

}  // namespace
}  // namespace stagecoach::worker
