// The values of a RedisKvStore, for operators.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/redis/redis_connection.h"
#include "worker/kv_store/kv_store_admin.h"

namespace stagecoach::worker {

// Finds keys by SCAN, so that Redis serves others meanwhile. Sizes and ages come from commands that
// do not count as a use of the value: looking does not change what Redis evicts next. Reading
// values does, before Redis 7.2. Under a policy allkeys-lfu, Redis knows no ages.
class RedisKvAdmin final : public KvStoreAdmin {
 public:
  static absl::StatusOr<std::unique_ptr<KvStoreAdmin>> Open(std::string_view url);

  std::string name() const override { return url_.Redacted(); }
  Age age() const override { return Age::kSinceUsed; }
  absl::Status Scan(const std::function<absl::Status(std::span<const StoredKv>)>& visit) override;
  absl::StatusOr<std::vector<std::optional<std::string>>> Read(
      std::span<const StoredKv> values) override;
  absl::StatusOr<uint64_t> Delete(std::span<const StoredKv> values) override;

 private:
  RedisKvAdmin(RedisUrl url, std::unique_ptr<RedisConnection> redis)
      : url_(std::move(url)), redis_(std::move(redis)) {}

  // The replies, some of which may be errors.
  absl::StatusOr<std::vector<RedisReply>> Send(const std::vector<RedisCommand>& commands);
  // The error of a reply, with the store's name.
  absl::Status StatusOf(const RedisReply& reply) const;
  absl::StatusOr<std::vector<StoredKv>> Describe(std::span<const KvKey> keys);

  const RedisUrl url_;
  const std::unique_ptr<RedisConnection> redis_;
};

}  // namespace stagecoach::worker
