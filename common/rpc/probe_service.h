// Answers health probes (grpc.health.v1.Health/Check) of the process as a whole, whatever service
// they name, and nothing else. It does not read the request, so that a probe of any size costs
// nothing: for ports that everyone may ask. Register it with RegisterCallbackGenericService; calls
// of methods that the server does not have come here, too, and are UNIMPLEMENTED. Thread-safe.
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
