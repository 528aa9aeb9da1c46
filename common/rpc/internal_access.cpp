#include "common/rpc/internal_access.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_interceptor.h>

#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "common/local_host.h"
#include "common/rpc/probe_service.h"
#include "common/rpc/server.h"
#include "common/secret.h"
#include "common/status.h"

namespace stagecoach {
namespace {

constexpr char kSecretKey[] = "stagecoach-secret";
// Closes connections from peers that connect but send nothing.
constexpr int kHandshakeMs = 10'000;
// Streams per connection. A router needs only a few streams and calls to a worker.
constexpr int kMaxStreams = 256;

class AddSecret final : public grpc::experimental::Interceptor {
 public:
  explicit AddSecret(const std::string* secret) : secret_(secret) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* call) override {
    using grpc::experimental::InterceptionHookPoints;
    if (call->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      call->GetSendInitialMetadata()->emplace(kSecretKey, *secret_);
    }
    call->Proceed();
  }

 private:
  const std::string* const secret_;
};

class AddSecretFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit AddSecretFactory(std::string secret) : secret_(std::move(secret)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new AddSecret(&secret_);
  }

 private:
  const std::string secret_;
};

absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(fmt::format("{} {}: not a PEM file", flag, path));
  }
  return text;
}

}  // namespace

absl::StatusOr<InternalAccess> ReadInternalAccess(const InternalFlags& flags) {
  InternalAccess access;
  if (!flags.secret_file.empty()) {
    SC_ASSIGN_OR_RETURN(access.secret, ReadSecret(flags.secret_file));
  }
  if (flags.tls_cert.empty()) return access;
  access.tls.emplace();
  SC_ASSIGN_OR_RETURN(access.tls->cert_chain, ReadPem("--internal-tls-cert", flags.tls_cert));
  SC_ASSIGN_OR_RETURN(access.tls->key, ReadPem("--internal-tls-key", flags.tls_key));
  SC_ASSIGN_OR_RETURN(access.tls->ca, ReadPem("--internal-tls-ca", flags.tls_ca));
  access.tls_name = flags.tls_name;
  return access;
}

absl::Status CheckListen(const std::string& address, const InternalAccess& access,
                         bool insecure_no_secret) {
  const bool is_local = address.starts_with("unix:") || IsLoopbackName(HostName(address));
  if (!access.secret.empty() || insecure_no_secret || is_local) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("--listen {} without a secret lets everyone who can reach it use this worker: "
                  "give the worker and its router the same --secret-file FILE (openssl rand -hex "
                  "32 > FILE), or pass --insecure-no-secret if nobody else can reach it",
                  address));
}

std::shared_ptr<grpc::Channel> MakeInternalChannel(const std::string& address,
                                                   const InternalAccess& access,
                                                   int max_message_bytes) {
  grpc::ChannelArguments args = ClientDefaults(max_message_bytes);
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (access.tls) {
    credentials = grpc::SslCredentials({.pem_root_certs = access.tls->ca,
                                        .pem_private_key = access.tls->key,
                                        .pem_cert_chain = access.tls->cert_chain});
    if (!access.tls_name.empty()) args.SetSslTargetNameOverride(access.tls_name);
  }
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!access.secret.empty()) {
    interceptors.push_back(std::make_unique<AddSecretFactory>(access.secret));
  }
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, credentials, args,
                                                                 std::move(interceptors));
}

void AddInternalPort(grpc::ServerBuilder& builder, const std::string& address,
                     const InternalAccess& access, int* port) {
  const auto admit = [secret = access.secret](const CallHead& call) -> absl::Status {
    if (secret.empty() || call.path() == kProbePath) return absl::OkStatus();
    const auto given = call.Find(kSecretKey);
    if (given && SameSecret(secret, *given)) return absl::OkStatus();
    return absl::UnauthenticatedError(
        given ? "the caller's secret differs from this worker's: both need the same --secret-file"
              : "this worker accepts calls only with its secret: give the router the same "
                "--secret-file");
  };
  builder.AddListeningPort(address, GatedCredentials(access.tls, admit), port);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
}

}  // namespace stagecoach
