// The open connections of a server.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

#include "common/mutex.h"

namespace stagecoach::router::http {

// Thread-safe.
class ConnectionControl {
 public:
  virtual ~ConnectionControl() = default;
  // Closes the connection if it has no request in progress. While the server drains, other
  // connections close after their request.
  virtual void CloseIfIdle() = 0;
  // Closes the connection now; its running request learns that the client is gone.
  virtual void Abort() = 0;
};

// Thread-safe.
class ConnectionRegistry {
 public:
  void Add(ConnectionControl* connection, std::weak_ptr<ConnectionControl> weak);
  void Remove(ConnectionControl* connection);
  size_t size() const;
  void ForEach(const std::function<void(ConnectionControl&)>& action) const;
  // False: `deadline`, if set, passed first.
  bool WaitUntilEmpty(std::optional<std::chrono::steady_clock::time_point> deadline);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::unordered_map<ConnectionControl*, std::weak_ptr<ConnectionControl>> connections_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::router::http
