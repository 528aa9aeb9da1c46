#include "router/access/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "common/status.h"
#include "router/access/read_text.h"
#include "router/access/retry_after.h"

namespace stagecoach::router {
namespace {

constexpr std::string_view kDigestPrefix = "sha256:";
constexpr uint32_t kMostWeight = 1000;
constexpr std::string_view kBearer = "Bearer ";
// Prefix of the names of tenants that have no tenant= option.
constexpr std::string_view kOwnTenant = "key:";

ApiKeys::Digest Sha256(std::string_view text) {
  ApiKeys::Digest digest;
  SHA256(reinterpret_cast<const uint8_t*>(text.data()), text.size(), digest.data());
  return digest;
}

std::optional<ApiKeys::Digest> ParseDigest(std::string_view hex) {
  ApiKeys::Digest digest;
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const char* pair = hex.data() + 2 * i;
    const auto [end, error] = std::from_chars(pair, pair + 2, digest[i], 16);
    if (error != std::errc() || end != pair + 2) return std::nullopt;
  }
  return digest;
}

template <typename Number>
bool ParseNumber(std::string_view text, Number& number) {
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  return error == std::errc() && end == last;
}

std::string_view NextWord(std::string_view& line) {
  const size_t start = std::min(line.find_first_not_of(" \t\r"), line.size());
  line.remove_prefix(start);
  const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
  line.remove_prefix(word.size());
  return word;
}

// Whether the name is safe in logs, metrics and keys of the stream store.
bool IsTenantName(std::string_view name) {
  return !name.empty() && !name.starts_with(kOwnTenant) &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

absl::StatusOr<ApiKeys> ApiKeys::Read(const std::string& path) {
  SC_ASSIGN_OR_RETURN(const std::string text, ReadText("--api-keys", path));
  return Parse(text, path);
}

absl::Status ApiKeys::ParseOption(std::string_view option, Key& key) {
  const size_t equals = std::min(option.find('='), option.size());
  const std::string_view name = option.substr(0, equals);
  const std::string_view value = option.substr(std::min(equals + 1, option.size()));
  if (name == "tenant") {
    if (!IsTenantName(value)) {
      return absl::InvalidArgumentError(fmt::format(
          "tenant must be printable ASCII without spaces and must not begin with \"{}\"",
          kOwnTenant));
    }
    key.caller.tenant = std::string(value);
    return absl::OkStatus();
  }
  if (name == "requests_per_minute") {
    double per_minute = 0;
    if (ParseNumber(value, per_minute) && per_minute > 0 && per_minute < 1e9) {
      key.caller.rate = std::make_shared<RateLimit>(per_minute);
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("requests_per_minute must be a number above 0");
  }
  if (name == "weight") {
    uint32_t weight = 0;
    if (ParseNumber(value, weight) && weight >= 1 && weight <= kMostWeight) {
      key.weight = weight;
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        fmt::format("weight must be an integer from 1 to {}", kMostWeight));
  }
  if (name == "max_priority") {
    if (ParseNumber(value, key.caller.max_priority)) return absl::OkStatus();
    return absl::InvalidArgumentError("max_priority must be an integer");
  }
  return absl::InvalidArgumentError(
      "unknown option: after the key, give only tenant=NAME, weight=N, max_priority=N or "
      "requests_per_minute=N");
}

absl::Status ApiKeys::ShareWeights(std::vector<Key>& keys) {
  std::map<std::string, const Key*> with_weight;  // by tenant
  for (const Key& key : keys) {
    if (!key.weight) continue;
    const auto [first, is_new] = with_weight.emplace(key.caller.tenant, &key);
    if (is_new || first->second->weight == key.weight) continue;
    return absl::InvalidArgumentError(
        fmt::format("line {}: weight is {}, but line {} gives the same tenant weight {}", key.line,
                    *key.weight, first->second->line, *first->second->weight));
  }
  for (Key& key : keys) {
    const auto found = with_weight.find(key.caller.tenant);
    if (found != with_weight.end()) key.caller.weight = *found->second->weight;
  }
  return absl::OkStatus();
}

absl::StatusOr<ApiKeys> ApiKeys::Parse(std::string_view text, std::string_view path) {
  std::vector<Key> keys;
  std::map<Digest, size_t> lines;
  size_t line_number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++line_number;
    // The message must not contain the line: it may hold a key.
    const auto bad = [&](std::string_view what) {
      return absl::InvalidArgumentError(fmt::format("{}: line {}: {}", path, line_number, what));
    };
    const std::string_view word = NextWord(line);
    if (word.empty() || word.front() == '#') continue;
    Key key;
    key.line = line_number;
    key.caller.max_priority = kDefaultMaxPriority;
    if (word.starts_with(kDigestPrefix)) {
      const auto digest = ParseDigest(word.substr(kDigestPrefix.size()));
      if (!digest) return bad("sha256: must be followed by 64 hexadecimal digits");
      key.digest = *digest;
    } else {
      key.digest = Sha256(word);
    }
    key.caller.tenant = fmt::format("{}{}", kOwnTenant, line_number);
    for (std::string_view option = NextWord(line); !option.empty(); option = NextWord(line)) {
      if (option.front() == '#') break;
      if (absl::Status status = ParseOption(option, key); !status.ok()) {
        return bad(std::string_view(status.message().data(), status.message().size()));
      }
    }
    const auto [first, is_new] = lines.emplace(key.digest, line_number);
    if (!is_new) return bad(fmt::format("the same key as on line {}", first->second));
    keys.push_back(std::move(key));
  }
  if (keys.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: contains no key, so every request would be refused: add a key, or start "
                    "without --api-keys",
                    path));
  }
  if (absl::Status weights = ShareWeights(keys); !weights.ok()) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", path, std::string(weights.message())));
  }
  return ApiKeys(std::move(keys));
}

size_t ApiKeys::IndexOf(std::string_view authorization) const {
  if (!authorization.starts_with(kBearer)) return keys_.size();
  const Digest given = Sha256(authorization.substr(kBearer.size()));
  size_t found = keys_.size();
  for (size_t i = 0; i < keys_.size(); ++i) {
    const bool same = CRYPTO_memcmp(given.data(), keys_[i].digest.data(), given.size()) == 0;
    found = same ? i : found;
  }
  return found;
}

absl::StatusOr<Caller> ApiKeys::Find(std::string_view authorization) const {
  const size_t index = IndexOf(authorization);
  if (index < keys_.size()) return keys_[index].caller;
  return absl::UnauthenticatedError(authorization.empty()
                                        ? "no API key: send it as \"Authorization: Bearer KEY\""
                                        : "this server does not know the API key");
}

absl::StatusOr<Caller> ApiKeys::TakeRequest(std::string_view authorization,
                                            Clock::time_point now) const {
  SC_ASSIGN_OR_RETURN(Caller caller, Find(authorization));
  if (caller.rate != nullptr) SC_RETURN_IF_ERROR(caller.rate->Take(1, now));
  return caller;
}

}  // namespace stagecoach::router
