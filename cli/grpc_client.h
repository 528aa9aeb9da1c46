// Client over gRPC.
#pragma once

#include <grpcpp/support/status.h>

#include <atomic>
#include <memory>
#include <string>

#include "cli/client.h"
#include "stagecoach/v1/inference.grpc.pb.h"

namespace stagecoach::cli {

// Thread-safe.
class GrpcClient final : public Client {
 public:
  // INVALID_ARGUMENT if the server is a URL or the certificate file cannot be read.
  static absl::StatusOr<std::unique_ptr<GrpcClient>> Make(const Connection& connection);

  absl::Status Stream(const v1::GenerateRequest& request, const PieceFn& on_piece,
                      Canceller* canceller) const override;
  absl::Status Stream(const v1::ChatRequest& request, const PieceFn& on_piece,
                      Canceller* canceller) const override;
  absl::StatusOr<v1::Model> GetModel() const override;

  // Calls of this stub send the API key in their metadata.
  v1::Inference::Stub& stub() const { return *stub_; }
  // Keeps the status code. If the connection failed, the message says so and how to fix it.
  absl::Status Explain(const grpc::Status& status) const;

 private:
  GrpcClient(Connection connection, std::unique_ptr<v1::Inference::Stub> stub);
  template <typename Request>
  absl::Status StreamAny(const Request& request, const PieceFn& on_piece,
                         Canceller* canceller) const;

  const Connection connection_;
  const std::unique_ptr<v1::Inference::Stub> stub_;
  mutable std::atomic<bool> knows_server_ = false;  // GetModel has succeeded
};

}  // namespace stagecoach::cli
