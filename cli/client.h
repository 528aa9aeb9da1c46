// A connection to a router, with errors in words that help at a terminal.
#pragma once

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stagecoach/v1/inference.grpc.pb.h"

namespace stagecoach::cli {

inline constexpr char kDefaultServer[] = "127.0.0.1:9000";

using PieceFn = std::function<void(const v1::GenerateResponse&)>;

// Thread-safe.
class Client {
 public:
  explicit Client(std::string server);

  // Calls `on_piece` for every message of the stream, on the caller's thread.
  absl::Status Stream(grpc::ClientContext& context, const v1::GenerateRequest& request,
                      const PieceFn& on_piece) const;
  absl::Status Stream(grpc::ClientContext& context, const v1::ChatRequest& request,
                      const PieceFn& on_piece) const;
  // The one model served. UNAVAILABLE when no server answers within some seconds.
  absl::StatusOr<v1::Model> GetModel() const;

  v1::Inference::Stub& stub() const { return *stub_; }
  // The same code; a connection that fails is told as such, with the way to start a server.
  absl::Status Explain(const grpc::Status& status) const;

 private:
  const std::string server_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

}  // namespace stagecoach::cli
