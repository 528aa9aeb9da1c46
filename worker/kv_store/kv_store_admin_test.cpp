// What holds for stores of every kind, and what only one kind has.
#include "worker/kv_store/kv_store_admin.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/redis/redis_connection.h"
#include "common/redis/testing/redis_server.h"
#include "common/temp_dir.h"
#include "worker/kv_store/kv_store.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

KvStore::Clock::time_point InAMinute() { return KvStore::Clock::now() + std::chrono::minutes(1); }

KvKey KeyOf(uint8_t block, uint32_t layer) { return {.block = {block, 1, 2, 3}, .layer = layer}; }

std::unique_ptr<KvStoreAdmin> OpenOrFail(const std::string& url) {
  auto admin = OpenKvStoreAdmin(url);
  INFO(admin.status());
  REQUIRE(admin.ok());
  return *std::move(admin);
}

void Put(const std::string& url, const KvKey& key, std::string_view bytes) {
  auto store = OpenKvStore(url, kMaxBytes);
  REQUIRE(store.ok());
  REQUIRE((*store)->Put(std::vector<KvValue>{{key, bytes}}, InAMinute()).ok());
}

std::vector<StoredKv> All(KvStoreAdmin& admin) {
  std::vector<StoredKv> all;
  const absl::Status status = admin.Scan([&](std::span<const StoredKv> values) {
    CHECK_FALSE(values.empty());
    all.insert(all.end(), values.begin(), values.end());
    return absl::OkStatus();
  });
  INFO(status);
  REQUIRE(status.ok());
  return all;
}

void Ask(const RedisServer& server, const RedisCommand& command) {
  auto redis = RedisConnection::Open(*ParseRedisUrl(server.url()), InAMinute());
  REQUIRE(redis.ok());
  REQUIRE((*redis)->Run(command, InAMinute()).ok());
}

// Calls `test` with the URL of an empty store of each kind.
template <typename Test>
void ForEachKind(const Test& test) {
  const RedisServer server;
  const TempDir dir;
  for (const std::string& url : {server.url() + "/0", "dir:" + dir.path()}) {
    CAPTURE(url);
    test(url);
  }
}

TEST_CASE("an operator sees each value once, reads and deletes it") {
  ForEachKind([](const std::string& url) {
    const auto admin = OpenOrFail(url);
    CHECK(admin->name() == url);
    CHECK(All(*admin).empty());
    std::map<std::pair<int, uint32_t>, std::string> put;
    for (const int block : {0, 1, 0xab, 0xff}) {
      for (const uint32_t layer : {0U, 7U, 12U}) {
        const std::string bytes(1'000 + 100 * layer + static_cast<size_t>(block), 'x');
        Put(url, KeyOf(static_cast<uint8_t>(block), layer), bytes);
        put[{block, layer}] = bytes;
      }
    }
    const std::vector<StoredKv> all = All(*admin);
    CHECK(all.size() == put.size());
    const auto read = admin->Read(all);
    REQUIRE(read.ok());
    std::map<std::pair<int, uint32_t>, std::string> found;
    for (size_t i = 0; i < all.size(); ++i) {
      CHECK(all[i].key.block[3] == 3);
      CHECK(all[i].bytes >= read->at(i)->size());
      CHECK(all[i].age >= std::chrono::seconds(0));
      found[{all[i].key.block[0], all[i].key.layer}] = *read->at(i);
    }
    CHECK(found == put);
    CHECK(*admin->Delete(std::span(all).first(2)) == 2);
    CHECK(*admin->Delete(std::span(all).first(3)) == 1);
    CHECK(All(*admin).size() == put.size() - 3);
    CHECK(admin->Read(std::span(all).first(1))->at(0) == std::nullopt);
  });
}

TEST_CASE("many values are seen in parts, and a visitor may delete them") {
  ForEachKind([](const std::string& url) {
    auto store = OpenKvStore(url, kMaxBytes);
    REQUIRE(store.ok());
    std::vector<KvValue> values;
    for (uint32_t layer = 0; layer < 1'000; ++layer) {
      for (const uint8_t block : {1, 2, 3}) values.push_back({KeyOf(block, layer), "value"});
    }
    REQUIRE((*store)->Put(values, InAMinute()).ok());
    const auto admin = OpenOrFail(url);
    CHECK(All(*admin).size() == values.size());
    uint64_t n_deleted = 0;
    int n_calls = 0;
    REQUIRE(admin
                ->Scan([&](std::span<const StoredKv> some) {
                  n_deleted += *admin->Delete(some);
                  ++n_calls;
                  return absl::OkStatus();
                })
                .ok());
    CHECK(n_deleted == values.size());
    CHECK(n_calls > 1);
    CHECK(All(*admin).empty());
  });
}

TEST_CASE("an error of the visitor ends a scan") {
  ForEachKind([](const std::string& url) {
    Put(url, KeyOf(1, 0), "value");
    const absl::Status status = OpenOrFail(url)->Scan(
        [](std::span<const StoredKv>) { return absl::CancelledError("enough"); });
    CHECK(status == absl::CancelledError("enough"));
  });
}

TEST_CASE("what others keep in the same Redis is not shown") {
  const RedisServer server;
  Put(server.url(), KeyOf(1, 12), "value");
  const std::string block(32, 'a');
  for (const std::string& key :
       {std::string("other"), std::string("stagecoach:kv:1:"), "stagecoach:kv:1:" + block,
        "stagecoach:kv:1:" + block + ":", "stagecoach:kv:1:" + block + ":01",
        "stagecoach:kv:1:" + block + ":1x", "stagecoach:kv:1:" + block + ":5000000000",
        "stagecoach:kv:2:" + block + ":1", "stagecoach:kv:1:" + std::string(32, 'A') + ":1"}) {
    Ask(server, {"SET", key, "value"});
  }
  Ask(server, {"RPUSH", "stagecoach:kv:1:" + block + ":1", "a list"});
  const auto admin = OpenOrFail(server.url());
  CHECK(admin->age() == KvStoreAdmin::Age::kSinceUsed);
  const std::vector<StoredKv> all = All(*admin);
  REQUIRE(all.size() == 1);
  CHECK(all[0].key == KeyOf(1, 12));
}

TEST_CASE("what others keep in the same folder is not shown") {
  const TempDir dir;
  Put("dir:" + dir.path(), KeyOf(0xab, 12), "value");
  const std::string block = "ab" + std::string(30, '0');
  for (const std::string& file :
       {std::string("notes"), std::string("ab/notes"), "ab/" + block, "ab/" + block + "-01",
        std::string("ab/new-xxxxxx"), "cd/" + block + "-1"}) {
    dir.Write(file, "value");
  }
  std::filesystem::create_directories(dir.File("ab/" + block + "-1"));
  dir.Write("12", "a file instead of a folder");
  const auto admin = OpenOrFail("dir:" + dir.path());
  CHECK(admin->age() == KvStoreAdmin::Age::kSinceWritten);
  const std::vector<StoredKv> all = All(*admin);
  REQUIRE(all.size() == 1);
  CHECK(all[0].key == KeyOf(0xab, 12));
  CHECK(all[0].bytes == 5);
}

TEST_CASE("a Redis that keeps the count of uses knows no ages") {
  const RedisServer server;
  Ask(server, {"CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"});
  Put(server.url(), KeyOf(1, 0), "value");
  const std::vector<StoredKv> all = All(*OpenOrFail(server.url()));
  REQUIRE(all.size() == 1);
  CHECK(all[0].age == std::nullopt);
}

TEST_CASE("the age of a file is that of its last change") {
  const TempDir dir;
  Put("dir:" + dir.path(), KeyOf(0xab, 0), "value");
  const std::string file = dir.File("ab/ab010203" + std::string(24, '0') + "-0");
  std::filesystem::last_write_time(
      file, std::filesystem::file_time_type::clock::now() - std::chrono::hours(5));
  const std::vector<StoredKv> all = All(*OpenOrFail("dir:" + dir.path()));
  REQUIRE(all.size() == 1);
  CHECK(all[0].age >= std::chrono::hours(5));
  CHECK(all[0].age < std::chrono::hours(6));
}

TEST_CASE("a store that is not there is an error without a password") {
  std::string place;
  {
    const RedisServer server;
    place = server.url().substr(sizeof("redis://") - 1);
  }
  CHECK(OpenKvStoreAdmin("redis://user:secret@" + place).status().code() ==
        absl::StatusCode::kUnavailable);
  CHECK(OpenKvStoreAdmin("dir:/stagecoach/none").status().code() == absl::StatusCode::kNotFound);
  for (const char* url :
       {"", "dir:", "/tmp", "http://user:secret@host", "redis://user:secret@h/x"}) {
    CAPTURE(url);
    const absl::Status status = OpenKvStoreAdmin(url).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find("secret") == std::string::npos);
  }
}

}  // namespace
}  // namespace stagecoach::worker
