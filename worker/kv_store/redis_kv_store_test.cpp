#include "worker/kv_store/redis_kv_store.h"

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/redis/testing/redis_server.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kLongest = 1 << 20;
constexpr char kStoredAs[] = "stagecoach:kv:1:ab000000000000000000000000000001:12";
const std::vector<KvKey> kKeys = {
    {.block = {0xab, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, .layer = 12}};
const std::vector<KvValue> kValues = {{kKeys[0], "value"}};

KvStore::Clock::time_point Later() { return KvStore::Clock::now() + std::chrono::minutes(1); }

std::unique_ptr<KvStore> OpenRedis(const std::string& url) {
  auto store = RedisKvStore::Open(url, kLongest);
  REQUIRE(store.ok());
  return *std::move(store);
}

RedisReply RunOn(const RedisServer& server, const RedisCommand& command) {
  auto redis = RedisConnection::Open(*ParseRedisUrl(server.url()), Later());
  REQUIRE(redis.ok());
  auto reply = (*redis)->Run(command, Later());
  REQUIRE(reply.ok());
  return *reply;
}

TEST_CASE("values lie at documented keys, and expire if the URL says so") {
  const RedisServer server;
  REQUIRE(OpenRedis(server.url())->Put(kValues, Later()).ok());
  CHECK(RunOn(server, {"GET", kStoredAs}).text() == "value");
  CHECK(RunOn(server, {"TTL", kStoredAs}).number() == -1);
  REQUIRE(OpenRedis(server.url() + "?ttl=1000")->Put(kValues, Later()).ok());
  CHECK(RunOn(server, {"TTL", kStoredAs}).number() > 900);
}

TEST_CASE("many values go through several exchanges") {
  const RedisServer server;
  const auto store = OpenRedis(server.url());
  const std::string bytes(kLongest, 'x');
  std::vector<KvKey> keys;
  std::vector<KvValue> values;
  for (uint32_t layer = 0; layer < 20; ++layer) {
    keys.push_back({.block = {}, .layer = layer});
    values.push_back({keys.back(), std::string_view(bytes).substr(layer)});
  }
  REQUIRE(store->Put(values, Later()).ok());
  const auto found = store->Get(keys, Later());
  REQUIRE(found.ok());
  REQUIRE(found->size() == keys.size());
  for (size_t i = 0; i < keys.size(); ++i) CHECK((*found)[i] == values[i].bytes);
}

TEST_CASE("a Redis that was away is used again, whatever it has lost") {
  RedisServer server;
  const auto store = OpenRedis(server.url());
  REQUIRE(store->Put(kValues, Later()).ok());
  server.Kill();
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = store->Get(kKeys, Later()).status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(std::string(status.message()).starts_with(server.url()));
    CHECK(store->Put(kValues, Later()).code() == absl::StatusCode::kUnavailable);
  }
  server.Start();
  const auto found = store->Get(kKeys, Later());
  REQUIRE(found.ok());
  CHECK((*found)[0] == std::nullopt);
  CHECK(store->Put(kValues, Later()).ok());
}

TEST_CASE("a Redis that dies while it is asked") {
  RedisServer server;
  const auto store = OpenRedis(server.url());
  REQUIRE(store->Put(kValues, Later()).ok());
  server.Signal(SIGSTOP);
  absl::Status status;
  std::thread reader([&] { status = store->Get(kKeys, Later()).status(); });
  server.Kill();
  reader.join();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("a Redis that does not answer costs the time until the deadline") {
  RedisServer server;
  const auto store = OpenRedis(server.url());
  REQUIRE(store->Put(kValues, Later()).ok());
  server.Signal(SIGSTOP);
  const auto soon = KvStore::Clock::now() + std::chrono::milliseconds(50);
  CHECK(store->Get(kKeys, soon).status().code() == absl::StatusCode::kUnavailable);
  server.Signal(SIGCONT);
  CHECK(store->Get(kKeys, Later())->at(0) == "value");
}

TEST_CASE("a full Redis refuses only what is put") {
  const RedisServer server;
  const auto store = OpenRedis(server.url());
  REQUIRE(store->Put(kValues, Later()).ok());
  RunOn(server, {"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  RunOn(server, {"CONFIG", "SET", "maxmemory", "1"});
  CHECK(store->Put(kValues, Later()).code() == absl::StatusCode::kResourceExhausted);
  CHECK(store->Get(kKeys, Later())->at(0) == "value");
  RunOn(server, {"CONFIG", "SET", "maxmemory", "0"});
  CHECK(store->Put(kValues, Later()).ok());
}

TEST_CASE("a wrong password is an error without the password") {
  const RedisServer server({"--requirepass", "right"});
  const std::string place = server.url().substr(sizeof("redis://") - 1);
  CHECK(OpenRedis("redis://:right@" + place)->Put(kValues, Later()).ok());
  const auto store = OpenRedis("redis://:secret@" + place);
  for (const absl::Status& status :
       {store->Get(kKeys, Later()).status(), store->Put(kValues, Later())}) {
    CHECK(status.code() == absl::StatusCode::kPermissionDenied);
    CHECK(std::string(status.message()).find("secret") == std::string::npos);
  }
}

TEST_CASE("a key of another kind is an error, and is replaced by what is put") {
  const RedisServer server;
  RunOn(server, {"RPUSH", kStoredAs, "a"});
  const auto store = OpenRedis(server.url());
  CHECK(store->Get(kKeys, Later()).status().code() == absl::StatusCode::kUnavailable);
  CHECK(store->Put(kValues, Later()).ok());
  CHECK(store->Get(kKeys, Later())->at(0) == "value");
}

}  // namespace
}  // namespace stagecoach::worker
