#include "worker/kv_exchange/kv_exchange.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "common/closable_queue.h"
#include "common/temp_dir.h"
#include "kernels/reference/reference_ops.h"

namespace stagecoach::worker {
namespace {

// Two layers of one stage, of different sizes.
std::vector<KvPart> Parts(int32_t first_layer = 3) {
  return {{.layer = first_layer, .kv_group = 0, .bytes = 96},
          {.layer = first_layer + 1, .kv_group = 1, .bytes = 32}};
}

KvBlockName Name(int i) {
  KvBlockName name;
  name.key.fill(static_cast<uint8_t>(i));
  name.tokens.fill(100 + i);
  return name;
}

unsigned char Byte(int block, size_t part) {
  return static_cast<unsigned char>(7 * block + 3 * part);
}

struct Fixture {
  explicit Fixture(const std::string& store, uint64_t memory_bytes = 128 * 2 * 64,
                   std::vector<KvPart> parts = Parts()) {
    auto started = KvExchange::Start({.store = store, .memory_bytes = memory_bytes},
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
      names.push_back(Name(i));
      for (size_t p = 0; p < exchange->parts().size(); ++p) {
        const auto to = blocks.bytes(p, b);
        std::memset(to.data(), Byte(i, p), to.size());
      }
    }
    const uint32_t n_taken = blocks.n_blocks();
    if (n_taken > 0) exchange->Save(std::move(blocks), std::move(names));
    return n_taken;
  }
  uint32_t Fetch(uint64_t id, int first, int n) {
    v1::KvFetch fetch;
    fetch.set_id(id);
    for (int i = first; i < first + n; ++i) {
      const KvBlockName name = Name(i);
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
      for (size_t p = 0; p < exchange->parts().size(); ++p) {
        for (const unsigned char byte : fetched->blocks.bytes(p, b)) {
          REQUIRE(byte == Byte(first + static_cast<int>(b), p));
        }
      }
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
  Fixture second_layer("dir:" + dir.path(), 4096, {Parts()[1]});
  CHECK(second_layer.Fetch(1, 0, 4) == 4);
  const auto fetched = second_layer.exchange->Fetched(1);
  CHECK(fetched->blocks.bytes(0, 2)[5] == Byte(2, 1));
  Fixture other_layers("dir:" + dir.path(), 4096, Parts(4));  // layer 5 was never saved
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
  CHECK(KvExchange::Start({.store = "ftp:x", .memory_bytes = 4096}, Parts(), ops.get())
            .status()
            .code() == absl::StatusCode::kInvalidArgument);
  CHECK(KvExchange::Start({.store = "dir:/tmp", .memory_bytes = 255}, Parts(), ops.get())
            .status()
            .code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stagecoach::worker
