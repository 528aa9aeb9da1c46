#include "cli/client.h"

#include <utility>

#include "cli/grpc_client.h"
#include "cli/http_client.h"

namespace stagecoach::cli {

void Canceller::Cancel() {
  const MutexLock lock(mutex_);
  is_cancelled_ = true;
  if (action_) action_();
}

void Canceller::Set(std::function<void()> action) {
  const MutexLock lock(mutex_);
  action_ = std::move(action);
  if (action_ && is_cancelled_) action_();
}

absl::StatusOr<std::unique_ptr<Client>> Connect(const Connection& connection) {
  if (connection.is_url()) return HttpClient::Make(connection);
  return GrpcClient::Make(connection);
}

}  // namespace stagecoach::cli
