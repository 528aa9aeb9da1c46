// The service grpc.health.v1 for router and workers. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace stagecoach {

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  HealthService();
  ~HealthService() override;

  // "" is the server as a whole. Watchers are notified at once.
  void SetServing(const std::string& service, bool serving);
  // Ends all Watch streams. Call it before the server's Shutdown, which waits for them.
  void Shutdown();

 private:
  class Watcher;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

  void Remove(Watcher* watcher);

  Mutex mutex_;
  std::map<std::string, Status> services_ ABSL_GUARDED_BY(mutex_);
  std::set<Watcher*> watchers_ ABSL_GUARDED_BY(mutex_);
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagecoach
