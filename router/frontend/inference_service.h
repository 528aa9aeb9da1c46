// stagecoach.v1.Inference over gRPC's callback API: a call is an object and needs no thread.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "router/access/access.h"
#include "router/frontend/server_call.h"

namespace stagecoach::router {

class Frontend;

// Does not use the generated service class: that one reads a message before the caller is admitted.
// Thread-safe.
class InferenceService final : public grpc::Service {
 public:
  // `frontend` outlives the server that the service is registered with.
  InferenceService(Frontend* frontend, std::shared_ptr<Access> access);

 private:
  template <typename Response>
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, Response>;

  // `make` creates the call object of an admitted caller.
  template <typename Response>
  void Add(const char* method, Access::Kind kind,
           std::function<Reactor<Response>*(grpc::CallbackServerContext*, Caller)> make);
  template <typename Request>
  void AddStream(const char* method, Access::Kind kind);
  template <typename Request, typename Response>
  void AddPooled(const char* method);
  template <typename Request, typename Response>
  using Work = std::function<absl::Status(const Caller&, const Request&, Response*)>;
  // `on_prompt_thread`: the time of `work` grows with the length of a text.
  template <typename Request, typename Response>
  void AddUnary(const char* method, Access::Kind kind, bool on_prompt_thread,
                Work<Request, Response> work);

  absl::StatusOr<Caller> Admit(const grpc::CallbackServerContext& context, Access::Kind kind);

  Frontend* const frontend_;
  const std::shared_ptr<Access> access_;
  std::deque<std::string> paths_;  // paths of the methods
};

}  // namespace stagecoach::router
