// Client over gRPC.
#pragma once

#include <grpcpp/support/status.h>

#include <memory>
#include <string>

#include "cli/client.h"
#include "stagecoach/v1/inference.grpc.pb.h"

namespace stagecoach::cli {

// Thread-safe.
class GrpcClient final : public Client {
 public:
  // INVALID_ARGUMENT for a URL, and a file of certificates that cannot be read.
  static absl::StatusOr<std::unique_ptr<GrpcClient>> Make(const Connection& connection);

  absl::Status Stream(const v1::GenerateRequest& request, const PieceFn& on_piece,
                      Canceller* canceller) const override;
  absl::Status Stream(const v1::ChatRequest& request, const PieceFn& on_piece,
                      Canceller* canceller) const override;
  absl::StatusOr<v1::Model> GetModel() const override;

  // Its calls have the key in their metadata.
  v1::Inference::Stub& stub() const { return *stub_; }
  // The same code; a connection that fails is told as such, with what to do about it.
  absl::Status Explain(const grpc::Status& status) const;

 private:
  GrpcClient(Connection connection, std::unique_ptr<v1::Inference::Stub> stub);

  const Connection connection_;
  const std::unique_ptr<v1::Inference::Stub> stub_;
};

}  // namespace stagecoach::cli
