#include "router/frontend/http/connection_registry.h"

#include <utility>
#include <vector>

namespace stagecoach::router::http {

void ConnectionRegistry::Add(ConnectionControl* connection, std::weak_ptr<ConnectionControl> weak) {
  MutexLock lock(mutex_);
  connections_.emplace(connection, std::move(weak));
}

void ConnectionRegistry::Remove(ConnectionControl* connection) {
  MutexLock lock(mutex_);
  connections_.erase(connection);
  if (connections_.empty()) changed_.notify_all();
}

size_t ConnectionRegistry::size() const {
  MutexLock lock(mutex_);
  return connections_.size();
}

void ConnectionRegistry::ForEach(const std::function<void(ConnectionControl&)>& action) const {
  std::vector<std::shared_ptr<ConnectionControl>> all;
  {
    MutexLock lock(mutex_);
    for (const auto& [pointer, weak] : connections_) {
      if (auto connection = weak.lock()) all.push_back(std::move(connection));
    }
  }
  for (const auto& connection : all) action(*connection);
}

bool ConnectionRegistry::WaitUntilEmpty(
    std::optional<std::chrono::steady_clock::time_point> deadline) {
  MutexLock lock(mutex_);
  const auto is_empty = [this]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return connections_.empty(); };
  if (deadline) return changed_.wait_until(lock, *deadline, is_empty);
  changed_.wait(lock, is_empty);
  return true;
}

}  // namespace stagecoach::router::http
