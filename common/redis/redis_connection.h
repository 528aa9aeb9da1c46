// A connection to a Redis: sends commands and waits for their replies, with a deadline.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/redis/redis_reply.h"
#include "common/redis/redis_url.h"

namespace stagecoach {

// The words of a command, such as {"SET", key, bytes}. They are of any bytes and only referred to.
using RedisCommand = std::vector<std::string_view>;

// One thread at a time. When Redis cannot be reached, does not answer in time or breaks the
// protocol, the connection is closed for good: whoever uses it opens another one, if and when that
// makes sense.
class RedisConnection {
 public:
  using Clock = std::chrono::steady_clock;

  // Connects and chooses user and database. TLS needs a certificate for the URL's host that an
  // authority of this machine has signed, or one in the file that the environment's SSL_CERT_FILE
  // names. PERMISSION_DENIED: user or password are wrong. INVALID_ARGUMENT: there is no such
  // database. UNAVAILABLE: not reached by the deadline; the look-up of a host's name may take
  // longer than that.
  static absl::StatusOr<std::unique_ptr<RedisConnection>> Open(const RedisUrl& url,
                                                               Clock::time_point deadline);
  ~RedisConnection();

  // Sends all commands at once (a pipeline) and returns their replies in the same order; some may
  // be errors. UNAVAILABLE: the connection is closed; any of the commands may have run.
  absl::StatusOr<std::vector<RedisReply>> Exchange(const std::vector<RedisCommand>& commands,
                                                   Clock::time_point deadline);
  // One command. Errors are also those that Redis answers (RedisReply::status).
  absl::StatusOr<RedisReply> Run(const RedisCommand& command, Clock::time_point deadline);

  bool is_open() const;

 private:
  class Transport;

  explicit RedisConnection(std::unique_ptr<Transport> transport);

  std::unique_ptr<Transport> transport_;
};

}  // namespace stagecoach
