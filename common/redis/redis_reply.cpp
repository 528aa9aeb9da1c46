#include "common/redis/redis_reply.h"

#include <hiredis/hiredis.h>

#include <string>
#include <utility>

#include "common/check.h"

namespace stagecoach {

RedisReply::RedisReply(redisReply* reply) : reply_(reply, freeReplyObject) {}

RedisReply::RedisReply(std::shared_ptr<redisReply> reply) : reply_(std::move(reply)) {}

absl::Status RedisReply::status() const {
  if (reply_->type != REDIS_REPLY_ERROR) return absl::OkStatus();
  const std::string message(reply_->str, reply_->len);
  const std::string code = message.substr(0, message.find(' '));
  if (code == "NOAUTH" || code == "WRONGPASS" || code == "NOPERM") {
    return absl::PermissionDeniedError(message);
  }
  if (code == "OOM") return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

bool RedisReply::is_nil() const { return reply_->type == REDIS_REPLY_NIL; }

std::string_view RedisReply::text() const {
  const bool is_text = reply_->type == REDIS_REPLY_STRING || reply_->type == REDIS_REPLY_STATUS;
  return is_text ? std::string_view(reply_->str, reply_->len) : std::string_view();
}

int64_t RedisReply::number() const {
  return reply_->type == REDIS_REPLY_INTEGER ? reply_->integer : 0;
}

size_t RedisReply::size() const { return reply_->type == REDIS_REPLY_ARRAY ? reply_->elements : 0; }

RedisReply RedisReply::at(size_t index) const {
  SC_CHECK(index < size());
  return RedisReply(std::shared_ptr<redisReply>(reply_, reply_->element[index]));
}

}  // namespace stagecoach
