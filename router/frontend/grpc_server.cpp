#include "router/frontend/grpc_server.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <utility>

#include "common/mutex.h"
#include "common/rpc/health.h"
#include "common/rpc/server.h"
#include "router/frontend/inference_service.h"

namespace stagecoach::router {
namespace {

constexpr char kServiceName[] = "stagecoach.v1.Inference";
constexpr int kHandshakeTimeoutMs = 10'000;

// `tls`: null for no TLS.
std::shared_ptr<grpc::ServerCredentials> Credentials(const TlsFiles* tls) {
  if (tls == nullptr) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back(
      {.private_key = tls->key_pem, .cert_chain = tls->cert_chain_pem});
  return grpc::SslServerCredentials(options);
}

class GrpcServerImpl final : public GrpcServer {
 public:
  GrpcServerImpl(Frontend* frontend, std::shared_ptr<Access> access)
      : access_(std::move(access)), inference_(frontend, access_) {}
  ~GrpcServerImpl() override { Shutdown(std::chrono::milliseconds(0)); }

  absl::Status Listen(const std::string& address) {
    grpc::ServerBuilder builder;
    ApplyServerDefaults(builder, kMaxClientMessageBytes);
    NoticeLostClients(builder);
    // A silent connection holds memory and a file descriptor.
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
    int port = 0;
    builder.AddListeningPort(address, Credentials(access_->tls()), &port);
    builder.RegisterService(&inference_);
    builder.RegisterService(&health_);
    SetStalled(false);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(
          fmt::format("cannot listen on {}: check that the port is free and that the host is an "
                      "address of this machine",
                      address));
    }
    address_ = fmt::format("{}:{}", address.substr(0, address.rfind(':')), port);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void SetNotServing() override {
    const MutexLock lock(mutex_);
    draining_ = true;
    SetServing();
  }
  void SetStalled(bool stalled) override {
    const MutexLock lock(mutex_);
    stalled_ = stalled;
    SetServing();
  }

  void Shutdown(std::chrono::milliseconds grace) override {
    if (server_ == nullptr) return;
    SetNotServing();
    health_.Shutdown();
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    server_->Wait();
    server_ = nullptr;
  }

 private:
  void SetServing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool serving = !draining_ && !stalled_;
    health_.SetServing("", serving);
    health_.SetServing(kServiceName, serving);
  }

  const std::shared_ptr<Access> access_;
  InferenceService inference_;
  HealthService health_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stalled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const std::string& address,
                                                              std::shared_ptr<Access> access,
                                                              Frontend* frontend) {
  auto server = std::make_unique<GrpcServerImpl>(frontend, std::move(access));
  if (absl::Status status = server->Listen(address); !status.ok()) return status;
  return server;
}

}  // namespace stagecoach::router
