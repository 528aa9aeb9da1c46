// What Redis answers to a command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"

struct redisReply;

namespace stagecoach {

// A value; copies share it. Thread-safe.
class RedisReply {
 public:
  // `reply` is of hiredis and not null; this object frees it.
  explicit RedisReply(redisReply* reply);

  // OK, or the error that Redis answered: PERMISSION_DENIED (user, password or rights),
  // RESOURCE_EXHAUSTED (its memory is full), or UNAVAILABLE for everything else.
  absl::Status status() const;
  bool is_nil() const;
  // The bytes of a string or a status; empty for other kinds. Valid while a copy of this object
  // lives.
  std::string_view text() const;
  // The value of an integer; 0 for other kinds.
  int64_t number() const;
  // The length of an array; 0 for other kinds.
  size_t size() const;
  RedisReply at(size_t index) const;  // index < size()

 private:
  explicit RedisReply(std::shared_ptr<redisReply> reply);

  std::shared_ptr<redisReply> reply_;
};

}  // namespace stagecoach
