// For tests: an empty place for a journal, of each kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/redis/testing/redis_server.h"
#include "common/temp_dir.h"

namespace stagecoach::router {

class JournalTestPlace {
 public:
  enum class Kind : uint8_t { kFolder, kRedis };

  explicit JournalTestPlace(Kind kind) {
    if (kind == Kind::kRedis) redis_.emplace();
  }

  // As in JournalOptions.
  std::string name() const { return redis_ ? redis_->url() : folder_.path(); }

 private:
  const TempDir folder_;
  std::optional<RedisServer> redis_;
};

}  // namespace stagecoach::router
