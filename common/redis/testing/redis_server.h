// A redis-server for tests, on a free port of this machine, that ends with its object.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/temp_dir.h"

namespace stagecoach {

class RedisServer {
 public:
  enum class Link : uint8_t { kPlain, kTls };

  // Returns when the server answers. `options` are more words of its command line; with TLS they
  // must name the certificates.
  explicit RedisServer(std::vector<std::string> options = {}, Link link = Link::kPlain);
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  // "redis://127.0.0.1:PORT", or rediss://
  std::string url() const;
  void Signal(int signal) const;
  // Kills it; it has kept nothing when it starts again, at the same port.
  void Kill();
  void Start();

 private:
  bool TryStart();

  const TempDir dir_;
  const std::vector<std::string> options_;
  const Link link_;
  int port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace stagecoach
