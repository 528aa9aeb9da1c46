// An Inference service with scripted answers, for tests of the client commands.
#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "stagecoach/v1/inference.grpc.pb.h"

namespace stagecoach::cli {

class FakeServer final : public v1::Inference::Service {
 public:
  using Writer = grpc::ServerWriter<v1::GenerateResponse>;
  using Answer = std::function<grpc::Status(const v1::GenerateRequest&, Writer&)>;

  explicit FakeServer(Answer answer);
  ~FakeServer() override;

  // HOST:PORT
  const std::string& address() const { return address_; }
  int most_at_once() const { return most_at_once_; }
  // The last call's authorization metadata. Read it only after that call has ended.
  const std::string& authorization() const { return authorization_; }

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        Writer* writer) override;

 private:
  const Answer answer_;
  std::string address_;
  std::string authorization_;
  std::atomic<int> n_running_ = 0;
  std::atomic<int> most_at_once_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// The last message of choice 0.
v1::GenerateResponse LastPiece(const std::string& text);

}  // namespace stagecoach::cli
