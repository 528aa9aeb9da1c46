// A redis-server for tests, on a free port of this machine, that ends with its object.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/temp_dir.h"

namespace stagecoach {

class RedisServer {
 public:
  // Returns when the server answers. `options` are more words of its command line.
  explicit RedisServer(std::vector<std::string> options = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  // "redis://127.0.0.1:PORT"
  std::string url() const;
  void Signal(int signal) const;
  // Kills it; it has kept nothing when it starts again, at the same port.
  void Kill();
  void Start();

 private:
  bool TryStart();

  const TempDir dir_;
  const std::vector<std::string> options_;
  int port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace stagecoach
