// One gRPC call of a client, whose message is read only once the client has been let in.
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
#include "router/frontend/retry_after.h"

namespace stagecoach::router {

// Streams both ways on our side whatever the method is to clients, which see no difference: for
// other kinds of methods gRPC takes in the message, up to its limit, before anyone is asked.
template <typename Request, typename Response>
class ServerCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, Response> {
 public:
  ServerCall(grpc::CallbackServerContext* context, Caller caller)
      : context_(context), caller_(std::move(caller)) {
    this->StartRead(&bytes_);
  }

  void OnReadDone(bool ok) final {
    if (!ok) return End(absl::InvalidArgumentError("the call came without its message"));
    grpc::ByteBuffer given(bytes_);  // the same bytes, which reading takes away
    const grpc::Status read = grpc::SerializationTraits<Request>::Deserialize(&bytes_, &request_);
    if (!read.ok()) return End(Why(given));
    Begin();
  }

 protected:
  // The request is there. What follows ends with End or this->StartWriteAndFinish.
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
    if (!given.DumpToSingleSlice(&wire).ok()) return absl::InternalError("the message is lost");
    return WhyUnreadable(*Request::descriptor(),
                         {reinterpret_cast<const char*>(wire.begin()), wire.size()});
  }

  grpc::CallbackServerContext* const context_;
  const Caller caller_;
  grpc::ByteBuffer bytes_;
  Request request_;
};

}  // namespace stagecoach::router
