#include "worker/kv_store/redis_quota.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "common/check.h"

namespace stagecoach::worker {
namespace {

// KEYS: the owner's set, then the values. ARGV: the quota, the set's seconds to live ("" for ever),
// then the values' sizes. EVAL, not EVALSHA: a Redis that was restarted has forgotten its scripts.
constexpr std::string_view kScript = R"(
local owned, quota = KEYS[1], tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local used = -(tonumber(redis.call('ZSCORE', owned, 'bytes') or 0))
for i = 2, #KEYS do
  local size = ARGV[i + 1]
  used = used + size * redis.call('ZADD', owned, now, size .. ' ' .. KEYS[i])
end
while used > quota do
  local oldest = redis.call('ZRANGEBYSCORE', owned, 1, '+inf', 'LIMIT', 0, 1)[1]
  if not oldest then used = 0 break end
  local size, key = string.match(oldest, '^(%d+) (.*)$')
  redis.call('ZREM', owned, oldest)
  redis.call('UNLINK', key)
  used = used - size
end
redis.call('ZADD', owned, -used, 'bytes')
if ARGV[2] ~= '' then redis.call('EXPIRE', owned, ARGV[2]) end
return used
)";

}  // namespace

RedisQuotaCommands::RedisQuotaCommands(uint64_t quota_bytes, std::string_view ttl_s,
                                       std::span<const KvValue> values,
                                       std::span<const std::string> names)
    : quota_(fmt::format("{}", quota_bytes)) {
  SC_CHECK(values.size() == names.size());
  std::map<uint64_t, std::vector<size_t>> by_owner;
  for (size_t i = 0; i < values.size(); ++i) by_owner[values[i].owner].push_back(i);
  indexes_.reserve(by_owner.size());  // the commands refer to the texts
  counts_.reserve(by_owner.size());
  sizes_.reserve(values.size());
  for (const KvValue& value : values) sizes_.push_back(fmt::format("{}", value.bytes.size()));
  for (const auto& [owner, of_owner] : by_owner) {
    indexes_.push_back(fmt::format("stagecoach:kv-quota:1:{:016x}", owner));
    counts_.push_back(fmt::format("{}", of_owner.size() + 1));
    RedisCommand& command = commands_.emplace_back();
    command = {"EVAL", kScript, counts_.back(), indexes_.back()};
    for (const size_t i : of_owner) command.push_back(names[i]);
    command.insert(command.end(), {quota_, ttl_s});
    for (const size_t i : of_owner) command.push_back(sizes_[i]);
  }
}

}  // namespace stagecoach::worker
