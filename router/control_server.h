// stagecoach.v1.Replicas over gRPC, on a Unix socket.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach::router {

class ReplicaChanges;

class ControlServer {
 public:
  // Listens at the path, which only this user may open; one that a dead router left is replaced.
  // `changes` outlives the server. UNAVAILABLE if nothing can listen there.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const std::string& path,
                                                              ReplicaChanges* changes);
  // Waits for running calls: call ReplicaChanges::Stop before.
  virtual ~ControlServer() = default;
};

}  // namespace stagecoach::router
