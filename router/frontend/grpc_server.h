// The router's gRPC server: Inference, Health and reflection on one port. Only Inference needs
// keys.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "router/access/access.h"

namespace stagecoach::router {

class Frontend;

class GrpcServer {
 public:
  // Listens on HOST:PORT (port 0: any free one). `frontend` outlives the server. UNAVAILABLE if the
  // address cannot be bound.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& address,
                                                           std::shared_ptr<Access> access,
                                                           Frontend* frontend);
  virtual ~GrpcServer() = default;  // shuts down at once unless Shutdown was called

  // The actual HOST:PORT.
  virtual const std::string& address() const = 0;
  // Health becomes NOT_SERVING.
  virtual void SetNotServing() = 0;
  // While stalled, health is NOT_SERVING.
  virtual void SetStalled(bool stalled) = 0;
  // Accepts no more calls, lets open calls finish for up to `grace`, then cancels them. Returns
  // when no call is left. Requires a running scheduler.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace stagecoach::router
