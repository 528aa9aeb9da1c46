#include "worker/kv_store/redis_quota.h"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/redis/testing/redis_server.h"
#include "worker/kv_store/redis_kv_store.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kBytes = 100;  // of a value
constexpr uint64_t kOne = 7, kOther = 8;

KvStore::Clock::time_point Later() { return KvStore::Clock::now() + std::chrono::minutes(1); }

KvKey Key(uint32_t i) { return {.block = {}, .layer = i}; }

// A Redis whose owners may have ten values.
class Quotas {
 public:
  explicit Quotas(const std::string& query = "?quota=1000")
      : query_(query), store_(OpenAnother()), kvs_(OpenAnother()) {}

  std::unique_ptr<KvStore> OpenAnother() const {
    auto store = RedisKvStore::Open(server_.url() + query_, kBytes);
    REQUIRE(store.ok());
    return *std::move(store);
  }
  void Put(uint32_t first, uint32_t n, uint64_t owner) { PutTo(*store_, first, n, owner); }
  static void PutTo(KvStore& store, uint32_t first, uint32_t n, uint64_t owner) {
    const std::string bytes(kBytes, 'x');
    std::vector<KvValue> values;
    for (uint32_t i = first; i < first + n; ++i) values.push_back({Key(i), bytes, owner});
    REQUIRE(store.Put(values, Later()).ok());
  }
  // Which of the first hundred values are there.
  std::set<uint32_t> Found() {
    std::vector<KvKey> keys;
    for (uint32_t i = 0; i < 100; ++i) keys.push_back(Key(i));
    const auto values = kvs_->Get(keys, Later());
    REQUIRE(values.ok());
    std::set<uint32_t> found;
    for (uint32_t i = 0; i < 100; ++i) {
      if ((*values)[i]) found.insert(i);
    }
    return found;
  }
  RedisReply Run(const RedisCommand& command) const {
    auto redis = RedisConnection::Open(*ParseRedisUrl(server_.url()), Later());
    REQUIRE(redis.ok());
    auto reply = (*redis)->Run(command, Later());
    REQUIRE(reply.ok());
    return *reply;
  }

 private:
  const RedisServer server_;
  const std::string query_;
  std::unique_ptr<KvStore> store_, kvs_;
};

std::set<uint32_t> Range(uint32_t first, uint32_t n) {
  std::set<uint32_t> range;
  for (uint32_t i = first; i < first + n; ++i) range.insert(i);
  return range;
}

TEST_CASE("above its quota an owner loses its oldest values, and no other owner does") {
  Quotas quotas;
  quotas.Put(50, 10, kOther);
  for (uint32_t i = 0; i < 25; i += 5) quotas.Put(i, 5, kOne);
  std::set<uint32_t> expected = Range(15, 10);
  expected.merge(Range(50, 10));
  CHECK(quotas.Found() == expected);
}

TEST_CASE("a value that is put again counts once, and is new again") {
  Quotas quotas;
  for (int i = 0; i < 5; ++i) quotas.Put(0, 5, kOne);
  quotas.Put(5, 5, kOne);
  CHECK(quotas.Found() == Range(0, 10));
  quotas.Put(0, 5, kOne);
  quotas.Put(10, 5, kOne);
  std::set<uint32_t> expected = Range(0, 5);
  expected.merge(Range(10, 5));
  CHECK(quotas.Found() == expected);
}

TEST_CASE("several connections share an owner's quota") {
  Quotas quotas;
  const auto another = quotas.OpenAnother();
  quotas.Put(0, 8, kOne);
  Quotas::PutTo(*another, 20, 8, kOne);
  CHECK(quotas.Found().size() == 10);
}

TEST_CASE("values of several owners in one call count for their own") {
  Quotas quotas;
  const std::string bytes(kBytes, 'x');
  std::vector<KvValue> values;
  for (uint32_t i = 0; i < 30; ++i) values.push_back({Key(i), bytes, i % 3 == 0 ? kOne : kOther});
  REQUIRE(quotas.OpenAnother()->Put(values, Later()).ok());
  const std::set<uint32_t> found = quotas.Found();
  CHECK(found.size() == 20);
  for (uint32_t i = 0; i < 30; i += 3) CHECK(found.contains(i));
}

TEST_CASE("what others delete leaves a quota usable, and so does a lost set") {
  Quotas quotas;
  quotas.Put(0, 10, kOne);
  REQUIRE(quotas.Run({"DEL", RedisKey(Key(0)), RedisKey(Key(5))}).number() == 2);
  quotas.Put(20, 10, kOne);
  CHECK(quotas.Found() == Range(20, 10));
  REQUIRE(quotas.Run({"DEL", "stagecoach:kv-quota:1:0000000000000007"}).number() == 1);
  quotas.Put(40, 12, kOne);
  CHECK(quotas.Found().size() == 20);  // the ten that are counted, and the ten from before
}

TEST_CASE("a value above the quota does not stay") {
  Quotas quotas("?quota=99");
  quotas.Put(0, 3, kOne);
  CHECK(quotas.Found().empty());
  CHECK(quotas.Run({"ZCARD", "stagecoach:kv-quota:1:0000000000000007"}).number() == 1);
}

TEST_CASE("with a time to live, an owner's set expires too") {
  Quotas quotas("?ttl=1000&quota=1000");
  quotas.Put(0, 3, kOne);
  CHECK(quotas.Run({"TTL", RedisKey(Key(0))}).number() > 900);
  CHECK(quotas.Run({"TTL", "stagecoach:kv-quota:1:0000000000000007"}).number() > 900);
}

}  // namespace
}  // namespace stagecoach::worker
