#include "cli/client.h"

#include <fmt/format.h>
#include <grpcpp/channel.h>

#include <chrono>

#include "common/rpc/server.h"
#include "common/rpc/status.h"

namespace stagecoach::cli {
namespace {

constexpr std::chrono::seconds kConnectTimeout(10);

bool IsConnectFailure(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return false;
  for (const char* sign :
       {"failed to connect", "DNS resolution failed", "connections to all backends"}) {
    if (status.error_message().find(sign) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Client::Client(std::string server)
    : server_(std::move(server)),
      stub_(v1::Inference::NewStub(MakeChannel(server_, kMaxInternalMessageBytes))) {}

absl::Status Client::Stream(grpc::ClientContext& context, const v1::GenerateRequest& request,
                            const PieceFn& on_piece) const {
  const auto reader = stub_->Generate(&context, request);
  for (v1::GenerateResponse piece; reader->Read(&piece);) on_piece(piece);
  return Explain(reader->Finish());
}

absl::Status Client::Stream(grpc::ClientContext& context, const v1::ChatRequest& request,
                            const PieceFn& on_piece) const {
  const auto reader = stub_->Chat(&context, request);
  for (v1::GenerateResponse piece; reader->Read(&piece);) on_piece(piece);
  return Explain(reader->Finish());
}

absl::StatusOr<v1::Model> Client::GetModel() const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kConnectTimeout);
  v1::Model model;
  const grpc::Status status = stub_->GetModel(&context, {}, &model);
  if (!status.ok()) return Explain(status);
  return model;
}

absl::Status Client::Explain(const grpc::Status& status) const {
  if (!IsConnectFailure(status)) return FromGrpc(status);
  return absl::UnavailableError(fmt::format(
      "no server answers at {}; start one with `stagecoach serve MODEL`, or name its address with "
      "--server HOST:PORT",
      server_));
}

}  // namespace stagecoach::cli
