#include "cli/fake_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "common/check.h"

namespace stagecoach::cli {

FakeServer::FakeServer(Answer answer) : answer_(std::move(answer)) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  SC_CHECK(server_ != nullptr);
  address_ = "127.0.0.1:" + std::to_string(port);
}

FakeServer::~FakeServer() { server_->Shutdown(); }

grpc::Status FakeServer::Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                                  Writer* writer) {
  const int n_running = ++n_running_;
  for (int most = most_at_once_; most < n_running;) {
    if (most_at_once_.compare_exchange_weak(most, n_running)) break;
  }
  if (const auto found = context->client_metadata().find("authorization");
      found != context->client_metadata().end()) {
    authorization_.assign(found->second.data(), found->second.size());
  }
  const grpc::Status status = answer_(*request, *writer);
  --n_running_;
  return status;
}

v1::GenerateResponse LastPiece(const std::string& text) {
  v1::GenerateResponse piece;
  piece.set_text(text);
  piece.add_token_ids(7);
  piece.set_finish_reason(v1::FINISH_REASON_STOP);
  piece.mutable_usage()->set_completion_tokens(1);
  return piece;
}

}  // namespace stagecoach::cli
