#include "cli/client.h"

#include <utility>

#include "cli/grpc_client.h"
#include "cli/http_client.h"

namespace stagecoach::cli {

void Canceller::Cancel() {
  const MutexLock lock(mutex_);
  is_cancelled_ = true;
  cancelled_.notify_all();
  if (action_) action_();
}

void Canceller::Set(std::function<void()> action) {
  const MutexLock lock(mutex_);
  action_ = std::move(action);
  if (action_ && is_cancelled_) action_();
}

bool Canceller::WaitFor(std::chrono::milliseconds time) {
  MutexLock lock(mutex_);
  return cancelled_.wait_for(
      lock, time, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_cancelled_; });
}

absl::StatusOr<std::unique_ptr<Client>> Connect(const Connection& connection) {
  if (connection.is_url()) return HttpClient::Make(connection);
  return GrpcClient::Make(connection);
}

}  // namespace stagecoach::cli
