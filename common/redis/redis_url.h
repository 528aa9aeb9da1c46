// Where a Redis is: redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE][?NAME=VALUE...], or rediss://
// for TLS.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach {

struct RedisUrl {
  bool tls = false;
  std::string host;  // an IPv6 address has no brackets here
  std::string port = "6379";
  std::string user;  // empty: Redis's default user
  std::string password;
  uint32_t database = 0;
  std::string query;  // without the question mark; what it means is the caller's affair

  // "redis://HOST:PORT/DATABASE": without what must not be in a log.
  std::string Redacted() const;
};

// Whether the text begins as a Redis's URL does.
bool IsRedisUrl(std::string_view text);

// INVALID_ARGUMENT; the message has no password. USER and PASSWORD may have %XX escapes.
absl::StatusOr<RedisUrl> ParseRedisUrl(std::string_view text);

}  // namespace stagecoach
