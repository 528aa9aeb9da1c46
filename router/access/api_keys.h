// API keys and their rate limits.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/access/caller.h"

namespace stagecoach::router {

// A file of keys, one per line, with blank lines and # comments:
//
//   sk-2f6d…            tenant=chatbot  weight=3  requests_per_minute=600
//   sha256:9f86d081…    tenant=batch    max_priority=0
//
// `sha256:` and 64 hexadecimal digits give the digest of a key, so that the file does not contain
// the key. A key without a tenant forms its own tenant, named after its line: "key:7". Without a
// rate there is no limit. Keys of one tenant do not share a rate. `weight` belongs to the tenant;
// it is 1 unless one of its keys sets it. `max_priority` is the best (lowest) priority value that a
// request with the key may have.
//
// Thread-safe.
class ApiKeys {
 public:
  using Clock = std::chrono::steady_clock;
  using Digest = std::array<uint8_t, 32>;  // SHA-256

  static absl::StatusOr<ApiKeys> Read(const std::string& path);
  static absl::StatusOr<ApiKeys> Parse(std::string_view text, std::string_view path);

  // `authorization`: "Bearer KEY", from a header field or a gRPC call's metadata. UNAUTHENTICATED:
  // no key, or an unknown one. Compares the digest with every key, so that the time does not depend
  // on the key.
  absl::StatusOr<Caller> Find(std::string_view authorization) const;

  // Like Find, and takes one choice from the key's rate. RESOURCE_EXHAUSTED, with the seconds to
  // wait, if none is left.
  absl::StatusOr<Caller> TakeRequest(std::string_view authorization, Clock::time_point now) const;

 private:
  struct Key {
    Digest digest;
    Caller caller;
    size_t line = 0;
    std::optional<uint32_t> weight;
  };

  explicit ApiKeys(std::vector<Key> keys) : keys_(std::move(keys)) {}
  // Parses `option`, NAME=VALUE after a key. INVALID_ARGUMENT if it is invalid; the message never
  // contains the key.
  static absl::Status ParseOption(std::string_view option, Key& key);
  // Gives each tenant's weight to all of its keys. INVALID_ARGUMENT if two keys set different
  // weights.
  static absl::Status ShareWeights(std::vector<Key>& keys);
  // keys_.size() if no key matches.
  size_t IndexOf(std::string_view authorization) const;

  std::vector<Key> keys_;
};

}  // namespace stagecoach::router
