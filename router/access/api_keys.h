// The keys that clients need, and how often each may be used.
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

// A file of keys, one a line, with blank lines and # comments:
//
//   sk-2f6d…            tenant=chatbot  weight=3  requests_per_minute=600
//   sha256:9f86d081…    tenant=batch    max_priority=0
//
// `sha256:` and 64 hexadecimal digits stand for a key that the file does not tell. Keys without a
// tenant are a tenant each, named after their line: "key:7". Without a rate there is no limit; keys
// of one tenant do not share a rate. `weight` is the tenant's, 1 where no key of its says another;
// `max_priority` the best priority, the lowest, that a request with the key may have.
//
// Thread-safe.
class ApiKeys {
 public:
  using Clock = std::chrono::steady_clock;
  using Digest = std::array<uint8_t, 32>;  // SHA-256

  static absl::StatusOr<ApiKeys> Read(const std::string& path);
  static absl::StatusOr<ApiKeys> Parse(std::string_view text, std::string_view path);

  // `authorization`: "Bearer KEY", a header field's value or a gRPC call's metadata.
  // UNAUTHENTICATED for no key or a wrong one. Takes as long whatever the key: all are compared, by
  // digests.
  absl::StatusOr<Caller> Find(std::string_view authorization) const;

  // The same, and takes one choice from the key's rate: RESOURCE_EXHAUSTED, with the seconds to
  // wait, when it has none left.
  absl::StatusOr<Caller> TakeRequest(std::string_view authorization, Clock::time_point now) const;

 private:
  struct Key {
    Digest digest;
    Caller caller;
    size_t line = 0;
    std::optional<uint32_t> weight;
  };

  explicit ApiKeys(std::vector<Key> keys) : keys_(std::move(keys)) {}
  // INVALID_ARGUMENT for what `option`, NAME=VALUE behind a key, cannot mean; says no key.
  static absl::Status ParseOption(std::string_view option, Key& key);
  // Each tenant's weight to all of its keys. INVALID_ARGUMENT when two say different ones.
  static absl::Status ShareWeights(std::vector<Key>& keys);
  // keys_.size() when it is none of them.
  size_t IndexOf(std::string_view authorization) const;

  std::vector<Key> keys_;
};

}  // namespace stagecoach::router
