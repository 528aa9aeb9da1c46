#include "worker/kv_store/redis_kv_admin.h"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <set>
#include <utility>

#include "common/status.h"
#include "worker/kv_store/redis_kv_store.h"

namespace stagecoach::worker {
namespace {

using std::chrono::seconds;

constexpr seconds kPatience(60);  // for one exchange
constexpr std::string_view kKeysAtOnce = "1000";

RedisConnection::Clock::time_point Deadline() { return RedisConnection::Clock::now() + kPatience; }

std::optional<KvKey> KeyAt(std::string_view name) {
  if (!name.starts_with(kRedisKeyPrefix)) return std::nullopt;
  return ParseKvKey(name.substr(kRedisKeyPrefix.size()), kRedisKeyMark);
}

template <typename T, typename KeyOf>
std::vector<std::string> NamesOf(std::span<const T> items, const KeyOf& key_of) {
  std::vector<std::string> names;
  names.reserve(items.size());
  for (const T& item : items) names.push_back(RedisKey(key_of(item)));
  return names;
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvStoreAdmin>> RedisKvAdmin::Open(std::string_view url) {
  SC_ASSIGN_OR_RETURN(RedisUrl parsed, ParseRedisUrl(url));
  SC_ASSIGN_OR_RETURN(auto redis, RedisConnection::Open(parsed, Deadline()));
  std::unique_ptr<RedisKvAdmin> admin(new RedisKvAdmin(std::move(parsed), std::move(redis)));
  // Before 7.2, Redis does not know the command. Only the order of eviction differs then.
  SC_RETURN_IF_ERROR(admin->Send({{"CLIENT", "NO-TOUCH", "ON"}}).status());
  return std::unique_ptr<KvStoreAdmin>(std::move(admin));
}

absl::StatusOr<std::vector<RedisReply>> RedisKvAdmin::Send(
    const std::vector<RedisCommand>& commands) {
  return redis_->Exchange(commands, Deadline());
}

absl::Status RedisKvAdmin::StatusOf(const RedisReply& reply) const {
  const absl::Status status = reply.status();
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("{}: {}", name(), std::string(status.message())));
}

absl::Status RedisKvAdmin::Scan(
    const std::function<absl::Status(std::span<const StoredKv>)>& visit) {
  const std::string pattern = std::string(kRedisKeyPrefix) + "*";
  // While Redis makes its table larger or smaller, it may name a key twice.
  std::set<std::pair<std::array<uint8_t, 16>, uint32_t>> seen;
  std::string cursor = "0";
  do {
    SC_ASSIGN_OR_RETURN(
        const std::vector<RedisReply> replies,
        Send({{"SCAN", cursor, "MATCH", pattern, "COUNT", kKeysAtOnce, "TYPE", "string"}}));
    SC_RETURN_IF_ERROR(StatusOf(replies[0]));
    if (replies[0].size() != 2) return absl::UnavailableError(name() + ": no answer to SCAN");
    cursor = replies[0].at(0).text();
    const RedisReply names = replies[0].at(1);
    std::vector<KvKey> keys;
    for (size_t i = 0; i < names.size(); ++i) {
      const std::optional<KvKey> key = KeyAt(names.at(i).text());
      if (key && seen.emplace(key->block, key->layer).second) keys.push_back(*key);
    }
    SC_ASSIGN_OR_RETURN(const std::vector<StoredKv> values, Describe(keys));
    if (!values.empty()) SC_RETURN_IF_ERROR(visit(values));
  } while (cursor != "0");
  return absl::OkStatus();
}

// STRLEN would count as a use.
absl::StatusOr<std::vector<StoredKv>> RedisKvAdmin::Describe(std::span<const KvKey> keys) {
  if (keys.empty()) return std::vector<StoredKv>();
  const std::vector<std::string> names = NamesOf(keys, std::identity());
  std::vector<RedisCommand> commands;
  for (const std::string& name : names) {
    commands.push_back({"MEMORY", "USAGE", name});
    commands.push_back({"OBJECT", "IDLETIME", name});
  }
  SC_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies, Send(commands));
  std::vector<StoredKv> values;
  for (size_t i = 0; i < keys.size(); ++i) {
    const RedisReply& bytes = replies[2 * i];
    const RedisReply& idle = replies[2 * i + 1];
    SC_RETURN_IF_ERROR(StatusOf(bytes));
    if (bytes.is_nil()) continue;  // gone
    StoredKv value{.key = keys[i], .bytes = static_cast<uint64_t>(bytes.number()), .age = {}};
    if (idle.status().ok() && !idle.is_nil()) value.age = seconds(idle.number());
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<std::vector<std::optional<std::string>>> RedisKvAdmin::Read(
    std::span<const StoredKv> values) {
  const std::vector<std::string> names = NamesOf(values, [](const StoredKv& v) { return v.key; });
  std::vector<RedisCommand> commands;
  commands.reserve(names.size());
  for (const std::string& name : names) commands.push_back({"GET", name});
  SC_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies, Send(commands));
  std::vector<std::optional<std::string>> all;
  for (const RedisReply& reply : replies) {
    SC_RETURN_IF_ERROR(StatusOf(reply));
    all.push_back(reply.is_nil() ? std::nullopt : std::optional<std::string>(reply.text()));
  }
  return all;
}

absl::StatusOr<uint64_t> RedisKvAdmin::Delete(std::span<const StoredKv> values) {
  const std::vector<std::string> names = NamesOf(values, [](const StoredKv& v) { return v.key; });
  std::vector<RedisCommand> commands;
  commands.reserve(names.size());
  for (const std::string& name : names) commands.push_back({"UNLINK", name});
  SC_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies, Send(commands));
  uint64_t n_deleted = 0;
  for (const RedisReply& reply : replies) {
    SC_RETURN_IF_ERROR(StatusOf(reply));
    n_deleted += static_cast<uint64_t>(reply.number());
  }
  return n_deleted;
}

}  // namespace stagecoach::worker
