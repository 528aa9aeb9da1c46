// KV blocks in a Redis: redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE][?ttl=SECONDS&quota=SIZE], or
// rediss:// for TLS.
//
// A value is the string stagecoach:kv:1:<32 hexadecimal digits of the block>:<layer>. With `ttl` it
// expires so many seconds after it was put, otherwise never. The operator limits Redis's memory:
// `maxmemory`, and `maxmemory-policy allkeys-lru`, which evicts what was not read for the longest
// time. With the policy `noeviction`, a full Redis refuses what is put, and still serves what it
// has. With `quota`, the values of one owner take so many bytes at most (redis_quota.h).
//
// The connection is opened when it is needed. One that has failed is dropped, and the next call
// opens another one by its own deadline.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/redis/redis_connection.h"
#include "worker/kv_store/kv_store.h"

namespace stagecoach::worker {

inline constexpr std::string_view kRedisKeyPrefix = "stagecoach:kv:1:";
inline constexpr char kRedisKeyMark = ':';  // between block and layer
// Where the value of a key is.
std::string RedisKey(const KvKey& key);

class RedisKvStore final : public KvStore {
 public:
  // As OpenKvStore. REQUIRES: max_value_bytes > 0.
  static absl::StatusOr<std::unique_ptr<KvStore>> Open(std::string_view url,
                                                       size_t max_value_bytes);

  std::string name() const override { return url_.Redacted(); }
  absl::StatusOr<std::vector<std::optional<std::string>>> Get(std::span<const KvKey> keys,
                                                              Clock::time_point deadline) override;
  absl::StatusOr<std::vector<bool>> Has(std::span<const KvKey> keys,
                                        Clock::time_point deadline) override;
  absl::Status Put(std::span<const KvValue> values, Clock::time_point deadline) override;

 private:
  struct Limits {
    std::string ttl_s;         // empty: values do not expire
    uint64_t quota_bytes = 0;  // of an owner; 0: none
  };

  RedisKvStore(RedisUrl url, Limits limits, size_t max_value_bytes);
  static absl::StatusOr<Limits> ParseLimits(std::string_view query);
  // Sends the commands, connects first if necessary, and returns the replies. None is an error.
  absl::StatusOr<std::vector<RedisReply>> Exchange(const std::vector<RedisCommand>& commands,
                                                   Clock::time_point deadline);

  const RedisUrl url_;
  const Limits limits_;
  const size_t max_value_bytes_;
  std::unique_ptr<RedisConnection> redis_;  // null: not connected
};

}  // namespace stagecoach::worker
