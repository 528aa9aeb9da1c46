#include "worker/kv_exchange/kv_exchange.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "common/closable_queue.h"
#include "common/temp_dir.h"
#include "kernels/reference/reference_ops.h"
#include "worker/kv_exchange/testing/numbered_blocks.h"

namespace stagecoach::worker {
namespace {

struct Fixture {
  explicit Fixture(const std::string& store, uint64_t memory_bytes = 128 * 2 * 64,
                   std::vector<KvPart> parts = TwoParts(), uint64_t host_bytes = 0) {
    auto started =
        KvExchange::Start({.store = store, .memory_bytes = memory_bytes, .host_bytes = host_bytes},
                          std::move(parts), ops.get());
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
    KvBlocks blocks = exchange->TakeForSave(n);
    std::vector<KvBlockName> names;
    for (uint32_t b = 0; b < blocks.n_blocks(); ++b) {
      const int i = first + static_cast<int>(b);
      names.push_back(BlockName(i));
      FillBlock(blocks, exchange->parts(), b, i);
    }
    const uint32_t n_taken = blocks.n_blocks();
    if (n_taken > 0) exchange->Save(std::move(blocks), std::move(names));
    return n_taken;
  }
  uint32_t Fetch(uint64_t id, int first, int n) {
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
    return answer->n_blocks();
  }
  void CheckFetched(uint64_t id, int first, uint32_t n) {
    const auto fetched = exchange->Fetched(id);
    REQUIRE(fetched != nullptr);
    CHECK(fetched->n_complete == n);
    for (uint32_t b = 0; b < n; ++b) {
      CheckBlock(fetched->blocks, exchange->parts(), b, first + static_cast<int>(b));
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
    Fixture saver("dir:" + dir.path());
    CHECK(saver.Save(0, 20) == 20);
    CHECK(saver.Save(30, 3) == 3);
  }  // its end saves what is queued
  Fixture other("dir:" + dir.path());
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
    Fixture(("dir:" + dir.path())).Save(0, 4);
  }
  Fixture second_layer("dir:" + dir.path(), 4096, {TwoParts()[1]});
  CHECK(second_layer.Fetch(1, 0, 4) == 4);
  const auto fetched = second_layer.exchange->Fetched(1);
  CHECK(fetched->blocks.bytes(0, 2)[5] == BlockByte(2, 1));
  Fixture other_layers("dir:" + dir.path(), 4096, TwoParts(4));  // layer 5 was never saved
  CHECK(other_layers.Fetch(1, 0, 4) == 0);
}

TEST_CASE("KV exchange: memory is bounded; what does not fit is dropped, or not fetched") {
  TempDir dir;
  Fixture fixture("dir:" + dir.path(), 128 * 2 * 8);
  std::vector<KvBlocks> held;
  held.push_back(fixture.exchange->TakeForSave(6));
  CHECK(fixture.Save(0, 5) == 2);
  CHECK(fixture.exchange->Stats().dropped_blocks() == 3);
  held.clear();
  {
    Fixture(("dir:" + dir.path())).Save(0, 12);
  }
  CHECK(fixture.Fetch(1, 0, 12) == 8);
  CHECK(fixture.Fetch(2, 0, 12) == 0);  // the first one holds all memory
  fixture.exchange->Forget(1);
  CHECK(fixture.Fetch(3, 0, 12) == 8);
}

TEST_CASE("KV exchange: damaged and foreign entries are misses") {
  TempDir dir;
  {
    Fixture(("dir:" + dir.path())).Save(0, 6);
  }
  int n_files = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir.path())) {
    if (file.is_regular_file() && ++n_files > 0 &&
        file.path().string().find("02020202") != std::string::npos) {
      std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) - 1);
    }
  }
  CHECK(n_files == 12);
  Fixture fixture("dir:" + dir.path());
  CHECK(fixture.Fetch(1, 0, 6) == 2);
  fixture.CheckFetched(1, 0, 2);
  CHECK(fixture.exchange->Stats().corrupt_values() == 1);
}

TEST_CASE("KV exchange: the end of an epoch forgets its fetches, and their answers do not come") {
  TempDir dir;
  {
    Fixture(("dir:" + dir.path())).Save(0, 6);
  }
  Fixture fixture("dir:" + dir.path(), 128 * 2 * 6);
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

TEST_CASE("KV exchange: the host tier serves without a store, for as many blocks as it holds") {
  Fixture fixture("", 4096, TwoParts(), 128 * 8);
  uint64_t id = 0;
  // The save thread may still be copying.
  const auto fetch_all = [&](int first, int n) {
    while (fixture.Fetch(++id, first, n) < static_cast<uint32_t>(n)) fixture.exchange->Forget(id);
    fixture.CheckFetched(id, first, static_cast<uint32_t>(n));
    fixture.exchange->Forget(id);
  };
  fixture.Save(0, 8);
  fetch_all(0, 8);
  CHECK(fixture.exchange->Stats().from_host_blocks() >= 8);
  CHECK(fixture.exchange->Stats().host_blocks() == 8);
  fixture.Save(20, 4);
  fetch_all(20, 4);
  CHECK(fixture.Fetch(++id, 0, 8) == 4);  // the last ones gave way
  CHECK(fixture.exchange->Stats().host_blocks() == 8);
}

TEST_CASE("KV exchange: what comes from the store stays in the host tier") {
  TempDir dir;
  {
    Fixture(("dir:" + dir.path())).Save(0, 6);
  }
  Fixture fixture("dir:" + dir.path(), 4096, TwoParts(), 128 * 8);
  CHECK(fixture.Fetch(1, 0, 6) == 6);
  std::filesystem::remove_all(dir.path());
  CHECK(fixture.Fetch(2, 0, 6) == 6);
  fixture.CheckFetched(2, 0, 6);
  CHECK(fixture.exchange->Stats().from_host_blocks() == 6);
}

TEST_CASE("KV exchange: a malformed fetch is answered with nothing") {
  TempDir dir;
  Fixture fixture("dir:" + dir.path());
  v1::KvFetch fetch;
  fetch.set_id(5);
  fetch.add_keys("short");
  fixture.exchange->Fetch(fetch);
  CHECK(fixture.answers.Pop()->n_blocks() == 0);
}

TEST_CASE("KV exchange: a bad URL, or memory for less than a block, is refused") {
  const auto ops = kernels::MakeReferenceOps();
  CHECK(KvExchange::Start({.store = "ftp:x", .memory_bytes = 4096}, TwoParts(), ops.get())
            .status()
            .code() == absl::StatusCode::kInvalidArgument);
  CHECK(KvExchange::Start({.memory_bytes = 4096, .host_bytes = 127}, TwoParts(), ops.get())
            .status()
            .code() == absl::StatusCode::kInvalidArgument);
  CHECK(KvExchange::Start({.store = "dir:/tmp", .memory_bytes = 255}, TwoParts(), ops.get())
            .status()
            .code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stagecoach::worker
