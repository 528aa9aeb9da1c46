// The router's gRPC server: Inference, Health and reflection on one port. Keys are needed for
// Inference alone.
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
  // Listens on HOST:PORT (port 0: any free one). `frontend` outlives the server. UNAVAILABLE when
  // the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& address,
                                                           std::shared_ptr<Access> access,
                                                           Frontend* frontend);
  virtual ~GrpcServer() = default;  // shuts down at once if that was not done

  // The real HOST:PORT.
  virtual const std::string& address() const = 0;
  // Health becomes NOT_SERVING.
  virtual void SetNotServing() = 0;
  // Health is NOT_SERVING while it is so.
  virtual void SetStalled(bool stalled) = 0;
  // Takes no more calls, gives open ones `grace` to end, then cancels them; returns when none is
  // left. Needs the scheduler.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace stagecoach::router
