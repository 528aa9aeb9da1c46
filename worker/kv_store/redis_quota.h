// How much of a Redis the values of one owner, a tenant, may take.
//
// Redis keeps a sorted set per owner, stagecoach:kv-quota:1:<16 hexadecimal digits>. Its members
// are
// "<bytes> <key>" of the values, with the time of the last write as score, and "bytes" with minus
// the sum as score. A script adds what was put and removes the oldest values until the sum is
// within the quota, in one go, so any number of stages and servers may share an owner. A value that
// Redis evicts or somebody deletes counts until it is the oldest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/redis/redis_connection.h"
#include "worker/kv_store/kv_store.h"

namespace stagecoach::worker {

// Commands that count values after they were put, one for each of their owners. The object holds
// the bytes that the commands refer to.
class RedisQuotaCommands {
 public:
  // `ttl_s` is empty if values do not expire. The keys of `values` are `names`, which outlive the
  // commands.
  RedisQuotaCommands(uint64_t quota_bytes, std::string_view ttl_s, std::span<const KvValue> values,
                     std::span<const std::string> names);
  RedisQuotaCommands(const RedisQuotaCommands&) = delete;
  RedisQuotaCommands& operator=(const RedisQuotaCommands&) = delete;

  const std::vector<RedisCommand>& commands() const { return commands_; }

 private:
  std::string quota_;
  std::vector<std::string> indexes_, counts_, sizes_;
  std::vector<RedisCommand> commands_;
};

}  // namespace stagecoach::worker
