// Who may use the server, and how often.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach::router::http {

// A file of keys, one a line, with blank lines and # comments:
//
//   sk-2f6d…            tenant=chatbot  requests_per_minute=600
//   sha256:9f86d081…    tenant=batch
//
// `sha256:` and 64 hexadecimal digits stand for a key that the file does not tell. Without a tenant
// it is "default", without a rate there is no limit; keys of one tenant do not share a rate.
//
// Thread-safe.
class ApiKeys {
 public:
  using Clock = std::chrono::steady_clock;
  using Digest = std::array<uint8_t, 32>;  // SHA-256

  static absl::StatusOr<ApiKeys> Read(const std::string& path);
  static absl::StatusOr<ApiKeys> Parse(std::string_view text, std::string_view path);

  ApiKeys(ApiKeys&& other) noexcept : keys_(std::move(other.keys_)) {}

  // `authorization`: the header field's value, "Bearer KEY". Gives the tenant; UNAUTHENTICATED for
  // no key or a wrong one. Takes as long whatever the key: all are compared, by digests.
  absl::StatusOr<std::string> Find(std::string_view authorization) const;

  // The same, and takes one request from the key's rate: RESOURCE_EXHAUSTED, with the seconds to
  // wait in the message, when it has none left. A key may save up a minute's worth.
  absl::StatusOr<std::string> TakeRequest(std::string_view authorization, Clock::time_point now);

 private:
  struct Key {
    Digest digest;
    std::string tenant = "default";
    double requests_per_minute = 0;  // 0: no limit
    double saved = 0;                // requests; guarded by mutex_
    Clock::time_point saved_at{};    // guarded by mutex_
  };

  explicit ApiKeys(std::vector<Key> keys) : keys_(std::move(keys)) {}
  // keys_.size() when it is none of them.
  size_t IndexOf(std::string_view authorization) const;

  std::vector<Key> keys_;
  std::mutex mutex_;
};

}  // namespace stagecoach::router::http
