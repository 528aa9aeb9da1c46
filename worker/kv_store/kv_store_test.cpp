// What holds for stores of every kind.
#include "worker/kv_store/kv_store.h"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <vector>

#include "common/redis/testing/redis_server.h"
#include "common/temp_dir.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kMaxBytes = 5 << 20;  // a Redis sends one at a time

KvStore::Clock::time_point InAMinute() { return KvStore::Clock::now() + std::chrono::minutes(1); }

KvKey KeyOf(uint8_t block, uint32_t layer) { return {.block = {block, 1, 2, 3}, .layer = layer}; }

std::unique_ptr<KvStore> OpenOrFail(const std::string& url, size_t max_value_bytes = kMaxBytes) {
  auto store = OpenKvStore(url, max_value_bytes);
  REQUIRE(store.ok());
  return *std::move(store);
}

// Calls `test` with the URL of an empty store of each kind.
template <typename Test>
void ForEachKind(const Test& test) {
  const RedisServer server;
  const TempDir dir;
  for (const std::string& url : {server.url() + "/3", "dir:" + dir.File("a/b")}) {
    CAPTURE(url);
    test(url);
  }
}

TEST_CASE("a store returns what another one has put, in the order of the keys") {
  ForEachKind([](const std::string& url) {
    const auto writer = OpenOrFail(url), reader = OpenOrFail(url);
    CHECK(reader->name() == url);
    const std::string bytes = std::string("\0\r\n\xff", 4) + std::string(kMaxBytes - 4, 'x');
    const std::vector<KvValue> values = {
        {KeyOf(1, 7), "first"}, {KeyOf(1, 8), bytes}, {KeyOf(2, 7), "other block"}};
    REQUIRE(writer->Put(values, InAMinute()).ok());
    const std::vector<KvKey> keys = {KeyOf(2, 7), KeyOf(2, 8), KeyOf(1, 8),
                                     KeyOf(1, 7), KeyOf(9, 7), KeyOf(2, 7)};
    const auto found = reader->Get(keys, InAMinute());
    REQUIRE(found.ok());
    CHECK(*found == std::vector<std::optional<std::string>>{"other block", std::nullopt, bytes,
                                                            "first", std::nullopt, "other block"});
    CHECK(reader->Has(keys, InAMinute()).value() ==
          std::vector<bool>{true, false, true, true, false, true});
    CHECK(reader->Get({}, InAMinute())->empty());
    CHECK(reader->Has({}, InAMinute())->empty());
    CHECK(writer->Put({}, InAMinute()).ok());
  });
}

TEST_CASE("a value replaces an earlier one") {
  ForEachKind([](const std::string& url) {
    const auto store = OpenOrFail(url);
    for (const char* bytes : {"a longer value", "value"}) {
      REQUIRE(store->Put(std::vector<KvValue>{{KeyOf(1, 0), bytes}}, InAMinute()).ok());
      CHECK(store->Get(std::vector{KeyOf(1, 0)}, InAMinute())->at(0) == bytes);
    }
  });
}

TEST_CASE("a value that is too long is a missing one") {
  ForEachKind([](const std::string& url) {
    REQUIRE(
        OpenOrFail(url)
            ->Put(std::vector<KvValue>{{KeyOf(1, 0), "12345"}, {KeyOf(2, 0), "1234"}}, InAMinute())
            .ok());
    const auto found = OpenOrFail(url, 4)->Get(std::vector{KeyOf(1, 0), KeyOf(2, 0)}, InAMinute());
    REQUIRE(found.ok());
    CHECK(*found == std::vector<std::optional<std::string>>{std::nullopt, "1234"});
  });
}

TEST_CASE("a call whose deadline has passed fails, and the next one succeeds") {
  ForEachKind([](const std::string& url) {
    const auto store = OpenOrFail(url);
    const auto past = KvStore::Clock::now() - std::chrono::seconds(1);
    CHECK(store->Get(std::vector{KeyOf(1, 0)}, past).status().code() ==
          absl::StatusCode::kUnavailable);
    CHECK(store->Has(std::vector{KeyOf(1, 0)}, past).status().code() ==
          absl::StatusCode::kUnavailable);
    CHECK(store->Put(std::vector<KvValue>{{KeyOf(1, 0), "value"}}, past).code() ==
          absl::StatusCode::kUnavailable);
    CHECK(store->Get(std::vector{KeyOf(1, 0)}, InAMinute()).ok());
  });
}

TEST_CASE("URLs of no store are refused, without their passwords") {
  for (const char* url :
       {"", "dir:", "/tmp", "http://user:secret@host", "redis://user:secret@host/kv",
        "redis://user:secret@host:port", "redis://:secret@host?ttl=0", "redis://:secret@host?ttl=",
        "redis://:secret@host?ttl=1h", "redis://:secret@host?ttl=5000000000",
        "redis://:secret@host?name=a", "redis://:secret@host?ttl=5&name=a",
        "redis://:secret@host?ttl=5&ttl=6", "redis://:secret@host?quota=0",
        "redis://:secret@host?quota=", "redis://:secret@host?quota=1XB"}) {
    CAPTURE(url);
    const absl::Status status = OpenKvStore(url, kMaxBytes).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find("secret") == std::string::npos);
  }
  CHECK(OpenOrFail("rediss://user:secret@host:1/2?ttl=3")->name() == "rediss://host:1/2");
  CHECK(OpenOrFail("redis://host?quota=10GiB&ttl=3")->name() == "redis://host:6379/0");
}

}  // namespace
}  // namespace stagecoach::worker
