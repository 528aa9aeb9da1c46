#include "worker/kv_store/redis_kv_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/size.h"
#include "common/status.h"
#include "worker/kv_store/redis_quota.h"

namespace stagecoach::worker {
namespace {

// Both sides hold what an exchange moves in memory. Larger exchanges are hardly faster.
constexpr size_t kExchangeBytes = 8 << 20;

}  // namespace

std::string RedisKey(const KvKey& key) {
  return std::string(kRedisKeyPrefix) + KvKeyText(key, kRedisKeyMark);
}

absl::StatusOr<std::unique_ptr<KvStore>> RedisKvStore::Open(std::string_view url,
                                                            size_t max_value_bytes) {
  SC_CHECK(max_value_bytes > 0);
  SC_ASSIGN_OR_RETURN(RedisUrl parsed, ParseRedisUrl(url));
  SC_ASSIGN_OR_RETURN(Limits limits, ParseLimits(parsed.query));
  return std::unique_ptr<KvStore>(
      new RedisKvStore(std::move(parsed), std::move(limits), max_value_bytes));
}

RedisKvStore::RedisKvStore(RedisUrl url, Limits limits, size_t max_value_bytes)
    : url_(std::move(url)), limits_(std::move(limits)), max_value_bytes_(max_value_bytes) {}

absl::StatusOr<RedisKvStore::Limits> RedisKvStore::ParseLimits(std::string_view query) {
  Limits limits;
  if (query.empty()) return limits;
  for (const absl::string_view item :
       absl::StrSplit(absl::string_view(query.data(), query.size()), '&')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(item, absl::MaxSplits('=', 1));
    uint32_t seconds = 0;
    if (pair.first == "ttl" && limits.ttl_s.empty() && absl::SimpleAtoi(pair.second, &seconds) &&
        seconds > 0) {
      limits.ttl_s = fmt::format("{}", seconds);
      continue;
    }
    const auto bytes = ParseBytes({pair.second.data(), pair.second.size()});
    if (pair.first == "quota" && limits.quota_bytes == 0 && bytes.ok() && *bytes > 0) {
      limits.quota_bytes = *bytes;
      continue;
    }
    return absl::InvalidArgumentError(
        "after a store's Redis URL may come ?ttl=SECONDS and quota=SIZE, such as "
        "?ttl=86400&quota=10GiB, both above 0, and nothing else");
  }
  return limits;
}

absl::StatusOr<std::vector<RedisReply>> RedisKvStore::Exchange(
    const std::vector<RedisCommand>& commands, Clock::time_point deadline) {
  if (redis_ == nullptr) {
    SC_ASSIGN_OR_RETURN(redis_, RedisConnection::Open(url_, deadline));
  }
  absl::StatusOr<std::vector<RedisReply>> replies = redis_->Exchange(commands, deadline);
  if (!redis_->is_open()) redis_.reset();
  SC_RETURN_IF_ERROR(replies.status());
  for (const RedisReply& reply : *replies) {
    const absl::Status status = reply.status();
    if (status.ok()) continue;
    return absl::Status(status.code(),
                        fmt::format("{}: {}", name(), std::string(status.message())));
  }
  return replies;
}

// GETRANGE instead of MGET: whatever lies at a key, Redis sends only a byte more than a value may
// have. So the memory that an exchange needs is bounded. A missing key is an empty string.
absl::StatusOr<std::vector<std::optional<std::string>>> RedisKvStore::Get(
    std::span<const KvKey> keys, Clock::time_point deadline) {
  const size_t n_at_once = std::max<size_t>(kExchangeBytes / max_value_bytes_, 1);
  const std::string end = fmt::format("{}", max_value_bytes_);  // inclusive
  std::vector<std::optional<std::string>> values;
  values.reserve(keys.size());
  while (values.size() < keys.size()) {
    const auto part = keys.subspan(values.size(), std::min(n_at_once, keys.size() - values.size()));
    std::vector<std::string> names;
    for (const KvKey& key : part) names.push_back(RedisKey(key));
    std::vector<RedisCommand> commands;
    commands.reserve(names.size());
    for (const std::string& name : names) commands.push_back({"GETRANGE", name, "0", end});
    SC_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies, Exchange(commands, deadline));
    for (const RedisReply& reply : replies) {
      const std::string_view text = reply.text();
      const bool is_value = !text.empty() && text.size() <= max_value_bytes_;
      values.push_back(is_value ? std::optional<std::string>(text) : std::nullopt);
    }
  }
  return values;
}

// The first byte of a value, so that a user needs no right to another command than Get's.
absl::StatusOr<std::vector<bool>> RedisKvStore::Has(std::span<const KvKey> keys,
                                                    Clock::time_point deadline) {
  std::vector<std::string> names;
  for (const KvKey& key : keys) names.push_back(RedisKey(key));
  std::vector<RedisCommand> commands;
  commands.reserve(names.size());
  for (const std::string& name : names) commands.push_back({"GETRANGE", name, "0", "0"});
  if (commands.empty()) return std::vector<bool>();
  SC_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies, Exchange(commands, deadline));
  std::vector<bool> found;
  found.reserve(replies.size());
  for (const RedisReply& reply : replies) found.push_back(!reply.text().empty());
  return found;
}

absl::Status RedisKvStore::Put(std::span<const KvValue> values, Clock::time_point deadline) {
  while (!values.empty()) {
    size_t n = 0, n_bytes = 0;
    std::vector<std::string> names;
    for (; n < values.size() && n_bytes < kExchangeBytes; ++n) {
      SC_CHECK(!values[n].bytes.empty() && values[n].bytes.size() <= max_value_bytes_);
      names.push_back(RedisKey(values[n].key));
      n_bytes += values[n].bytes.size();
    }
    std::vector<RedisCommand> commands;
    for (size_t i = 0; i < n; ++i) {
      commands.push_back({"SET", names[i], values[i].bytes});
      if (!limits_.ttl_s.empty()) {
        commands.back().insert(commands.back().end(), {"EX", limits_.ttl_s});
      }
    }
    std::optional<RedisQuotaCommands> counting;
    if (limits_.quota_bytes > 0) {
      counting.emplace(limits_.quota_bytes, limits_.ttl_s, values.first(n), names);
      commands.insert(commands.end(), counting->commands().begin(), counting->commands().end());
    }
    SC_RETURN_IF_ERROR(Exchange(commands, deadline).status());
    values = values.subspan(n);
  }
  return absl::OkStatus();
}

}  // namespace stagecoach::worker
