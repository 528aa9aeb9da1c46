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
constexpr std::string_view kBearer = "Bearer ";
// Begins the names of tenants that no line names.
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

std::string_view NextWord(std::string_view& line) {
  const size_t start = std::min(line.find_first_not_of(" \t\r"), line.size());
  line.remove_prefix(start);
  const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
  line.remove_prefix(word.size());
  return word;
}

// Fit for logs, metrics and the keys of what is kept.
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
          "tenant is not a name of printable ASCII that begins otherwise than {}", kOwnTenant));
    }
    key.caller.tenant = std::string(value);
    return absl::OkStatus();
  }
  if (name == "requests_per_minute") {
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), key.requests_per_minute);
    if (error == std::errc() && end == value.data() + value.size() && key.requests_per_minute > 0 &&
        key.requests_per_minute < 1e9) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("requests_per_minute is not a number above 0");
  }
  return absl::InvalidArgumentError(
      "behind the key only tenant=NAME and requests_per_minute=N are understood");
}

absl::StatusOr<ApiKeys> ApiKeys::Parse(std::string_view text, std::string_view path) {
  std::vector<Key> keys;
  std::map<Digest, size_t> lines;
  size_t line_number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++line_number;
    // Not the line itself: it may hold a key.
    const auto bad = [&](std::string_view what) {
      return absl::InvalidArgumentError(fmt::format("{}: line {}: {}", path, line_number, what));
    };
    const std::string_view word = NextWord(line);
    if (word.empty() || word.front() == '#') continue;
    Key key;
    if (word.starts_with(kDigestPrefix)) {
      const auto digest = ParseDigest(word.substr(kDigestPrefix.size()));
      if (!digest) return bad("sha256: is not followed by 64 hexadecimal digits");
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
    if (!is_new) return bad(fmt::format("the key of line {} again", first->second));
    key.saved = std::max(1.0, key.requests_per_minute);
    keys.push_back(std::move(key));
  }
  if (keys.empty()) {
    return absl::InvalidArgumentError(fmt::format("{}: holds no key: nobody could come in", path));
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
                                        : "the API key is not known here");
}

absl::StatusOr<Caller> ApiKeys::TakeRequest(std::string_view authorization, Clock::time_point now) {
  SC_ASSIGN_OR_RETURN(Caller caller, Find(authorization));
  Key& key = keys_[IndexOf(authorization)];
  if (key.requests_per_minute == 0) return caller;
  std::lock_guard lock(mutex_);
  const double per_second = key.requests_per_minute / 60;
  const double most = std::max(1.0, key.requests_per_minute);
  const std::chrono::duration<double> passed = now - key.saved_at;
  if (key.saved_at != Clock::time_point{}) {
    key.saved = std::min(most, key.saved + passed.count() * per_second);
  }
  key.saved_at = now;
  if (key.saved < 1) {
    const int wait_s = static_cast<int>(std::ceil((1 - key.saved) / per_second));
    return WithRetryAfter(absl::ResourceExhaustedError(fmt::format(
                              "this key's {} requests a minute are used up; try again in {} s",
                              key.requests_per_minute, wait_s)),
                          wait_s);
  }
  key.saved -= 1;
  return caller;
}

}  // namespace stagecoach::router
