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
  // Ends if no request is on its way. While the server is draining others end after theirs.
  virtual void CloseIfIdle() = 0;
  // Ends now; what runs for it is told that the client is gone.
  virtual void Abort() = 0;
};

// Thread-safe.
class ConnectionRegistry {
 public:
  void Add(ConnectionControl* connection, std::weak_ptr<ConnectionControl> weak);
  void Remove(ConnectionControl* connection);
  size_t size() const;
  void ForEach(const std::function<void(ConnectionControl&)>& action) const;
  // False when `deadline`, if there is one, came first.
  bool WaitUntilEmpty(std::optional<std::chrono::steady_clock::time_point> deadline);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::unordered_map<ConnectionControl*, std::weak_ptr<ConnectionControl>> connections_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::router::http
