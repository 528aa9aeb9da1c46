// One gRPC call of a client. Its message is read only after the client is admitted.
#pragma once

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/slice.h>

#include <utility>

#include "absl/status/status.h"
#include "common/rpc/status.h"
#include "common/rpc/unreadable.h"
#include "router/access/caller.h"
#include "router/access/memory_budget.h"
#include "router/frontend/frontend.h"
#include "router/frontend/message_gate.h"
#include "router/frontend/retry_after.h"

namespace stagecoach::router {

inline constexpr char kManyLargeRequests[] =
    "other large requests take the memory for requests (--request-memory), or the message came too "
    "slowly while others waited; try again later";

// On the server side, every method is a bidirectional stream; clients see no difference. For other
// method types, gRPC reads the message, up to its size limit, before any handler runs.
template <typename Request, typename Response>
class ServerCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, Response> {
 public:
  ServerCall(Frontend* frontend, grpc::CallbackServerContext* context, Caller caller)
      : context_(context),
        caller_(std::move(caller)),
        gate_(frontend->message_gate()),
        memory_(&frontend->memory()) {
    gate_.Enter({.tenant = caller_.tenant,
                 .receive = [this] { this->StartRead(&bytes_); },
                 .refuse = [this] { End(absl::ResourceExhaustedError(kManyLargeRequests)); }},
                &ticket_);
  }

  void OnReadDone(bool ok) final {
    if (!gate_.Leave(ticket_)) return;  // refused
    if (!ok) return End(absl::InvalidArgumentError("the call came without its message"));
    // The message and what it is parsed into; then the latter alone.
    const size_t n_bytes = bytes_.Length();
    if (!memory_.GrowTo(2 * n_bytes)) {
      return End(absl::ResourceExhaustedError(kManyLargeRequests));
    }
    grpc::ByteBuffer given(bytes_);  // a reference to the same bytes; reading consumes bytes_
    const grpc::Status read = grpc::SerializationTraits<Request>::Deserialize(&bytes_, &request_);
    if (!read.ok()) return End(Why(given));
    given.Clear();
    memory_.ShrinkTo(n_bytes);
    Begin();
  }

 protected:
  // The request has arrived. Must lead to End or this->StartWriteAndFinish.
  virtual void Begin() = 0;

  const Request& request() const { return request_; }
  const Caller& caller() const { return caller_; }
  grpc::CallbackServerContext* context() const { return context_; }

  void End(const absl::Status& status) {
    AddRetryAfter(context_, status);
    this->Finish(ToGrpc(status));
  }

 private:
  static absl::Status Why(const grpc::ByteBuffer& given) {
    grpc::Slice wire;
    if (!given.DumpToSingleSlice(&wire).ok())
      return absl::InternalError("the message could not be received");
    return WhyUnreadable(*Request::descriptor(),
                         {reinterpret_cast<const char*>(wire.begin()), wire.size()});
  }

  grpc::CallbackServerContext* const context_;
  const Caller caller_;
  MessageGate& gate_;
  MessageGate::Ticket ticket_ = 0;
  MemoryBudget::Lease memory_;
  grpc::ByteBuffer bytes_;
  Request request_;
};

}  // namespace stagecoach::router
