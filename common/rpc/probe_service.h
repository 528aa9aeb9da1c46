// Answers health probes (grpc.health.v1.Health/Check) for the whole process, whatever service they
// name. It does not read the request, so a probe of any size costs nothing: suitable for ports open
// to everyone. Register it with RegisterCallbackGenericService. Calls of methods that the server
// does not have also arrive here and end with UNIMPLEMENTED. Thread-safe.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <atomic>

namespace stagecoach {

inline constexpr char kProbePath[] = "/grpc.health.v1.Health/Check";

class ProbeService final : public grpc::CallbackGenericService {
 public:
  void SetServing(bool serving) { serving_ = serving; }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  std::atomic<bool> serving_{false};
};

}  // namespace stagecoach
