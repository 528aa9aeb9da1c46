#include "cli/grpc_client.h"

#include <fmt/format.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/client_interceptor.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "cli/probe.h"
#include "cli/resumed_stream.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

constexpr std::chrono::seconds kConnectTimeout(10);

// gRPC's built-in path of the system's CA bundle does not exist on every distribution.
constexpr const char* kSystemAuthorities[] = {"/etc/ssl/certs/ca-certificates.crt",
                                              "/etc/pki/tls/certs/ca-bundle.crt"};

// Adds the API key to each call's metadata. gRPC's own call credentials would work only with TLS.
class KeyBearer final : public grpc::experimental::Interceptor {
 public:
  explicit KeyBearer(std::string value) : value_(std::move(value)) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization", value_);
    }
    methods->Proceed();
  }

 private:
  const std::string value_;
};

class KeyBearerFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit KeyBearerFactory(std::string key) : value_("Bearer " + std::move(key)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new KeyBearer(value_);
  }

 private:
  const std::string value_;
};

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.is_open() && !text.empty()) return text;
  return absl::InvalidArgumentError(fmt::format("--tls-ca {}: cannot be read, or is empty", path));
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const Connection& connection) {
  if (!connection.tls && connection.tls_ca.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  std::string path = connection.tls_ca;
  for (const char* authorities : kSystemAuthorities) {
    std::error_code none;
    if (path.empty() && std::filesystem::exists(authorities, none)) path = authorities;
  }
  if (!path.empty()) {
    SC_ASSIGN_OR_RETURN(options.pem_root_certs, ReadFile(path));
  }
  return grpc::SslCredentials(options);
}

// The words with which gRPC itself reports a failed connection. A server that has lost a stage may
// quote the same words after the stage's name, so the message must begin with them.
constexpr const char* kUnreachedSigns[] = {"failed to connect", "DNS resolution failed",
                                           "connections to all backends",
                                           "Trying to connect an http1.x server"};
constexpr const char* kBrokenSigns[] = {"Socket closed",    "GOAWAY",      "recvmsg",  "sendmsg",
                                        "Connection reset", "Broken pipe", "keepalive"};

CallEnd::Cut CutOf(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return CallEnd::Cut::kNone;
  const auto begins = [&status](const char* sign) {
    return status.error_message().starts_with(sign);
  };
  if (std::ranges::any_of(kUnreachedSigns, begins)) return CallEnd::Cut::kUnreached;
  return std::ranges::any_of(kBrokenSigns, begins) ? CallEnd::Cut::kBroken : CallEnd::Cut::kNone;
}

using Reader = std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>;

Reader Start(v1::Inference::Stub& stub, grpc::ClientContext* context,
             const v1::GenerateRequest& request) {
  return stub.Generate(context, request);
}
Reader Start(v1::Inference::Stub& stub, grpc::ClientContext* context,
             const v1::ChatRequest& request) {
  return stub.Chat(context, request);
}
Reader Start(v1::Inference::Stub& stub, grpc::ClientContext* context,
             const v1::ResumeRequest& request) {
  return stub.Resume(context, request);
}

template <typename Request>
class GrpcCalls final : public StreamCalls {
 public:
  GrpcCalls(const GrpcClient& client, Request request, Canceller& canceller)
      : client_(client), request_(std::move(request)), canceller_(canceller) {}

  CallEnd Begin(bool resumable, const PartFn& on_part) override {
    request_.set_resumable(resumable);
    if (resumable && request_.request_id().empty()) request_.set_request_id(NewStreamName());
    return Read(request_, resumable, on_part);
  }
  CallEnd Resume(uint64_t from, const PartFn& on_part) override {
    v1::ResumeRequest rest;
    rest.set_request_id(request_.request_id());
    rest.set_from(from);
    return Read(rest, /*has_positions=*/true, on_part);
  }
  void Drop() override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDropTimeout);
    v1::CancelRequest cancel;
    cancel.set_request_id(request_.request_id());
    v1::CancelResponse done;
    client_.stub().Cancel(&context, cancel, &done);
  }

 private:
  template <typename AnyRequest>
  CallEnd Read(const AnyRequest& request, bool has_positions, const PartFn& on_part) {
    grpc::ClientContext context;
    canceller_.Set([&context] { context.TryCancel(); });
    const Reader reader = Start(client_.stub(), &context, request);
    for (v1::GenerateResponse piece; reader->Read(&piece);) {
      on_part({&piece, 1}, has_positions ? std::optional(piece.position()) : std::nullopt);
    }
    const grpc::Status status = reader->Finish();
    canceller_.Set(nullptr);
    return {.status = client_.Explain(status), .cut = CutOf(status)};
  }

  const GrpcClient& client_;
  Request request_;
  Canceller& canceller_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcClient>> GrpcClient::Make(const Connection& connection) {
  if (connection.is_url()) {
    return absl::InvalidArgumentError(
        fmt::format("--server {}: this command supports only gRPC; give the HOST:PORT after grpc= "
                    "in the server's ready line",
                    connection.server));
  }
  SC_ASSIGN_OR_RETURN(const auto credentials, MakeCredentials(connection));
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!connection.api_key.empty()) {
    interceptors.push_back(std::make_unique<KeyBearerFactory>(connection.api_key));
  }
  const auto channel = grpc::experimental::CreateCustomChannelWithInterceptors(
      connection.server, credentials, ClientDefaults(kMaxInternalMessageBytes),
      std::move(interceptors));
  return std::unique_ptr<GrpcClient>(new GrpcClient(connection, v1::Inference::NewStub(channel)));
}

GrpcClient::GrpcClient(Connection connection, std::unique_ptr<v1::Inference::Stub> stub)
    : connection_(std::move(connection)), stub_(std::move(stub)) {}

template <typename Request>
absl::Status GrpcClient::StreamAny(const Request& request, const PieceFn& on_piece,
                                   Canceller* canceller) const {
  Canceller nobody;
  Canceller& whose = canceller != nullptr ? *canceller : nobody;
  GrpcCalls<Request> calls(*this, request, whose);
  return ReadStream(calls,
                    {.limit = connection_.resume_limit, .knows_server = knows_server_.load()},
                    whose, on_piece);
}

absl::Status GrpcClient::Stream(const v1::GenerateRequest& request, const PieceFn& on_piece,
                                Canceller* canceller) const {
  return StreamAny(request, on_piece, canceller);
}

absl::Status GrpcClient::Stream(const v1::ChatRequest& request, const PieceFn& on_piece,
                                Canceller* canceller) const {
  return StreamAny(request, on_piece, canceller);
}

absl::StatusOr<v1::Model> GrpcClient::GetModel() const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kConnectTimeout);
  v1::Model model;
  const grpc::Status status = stub_->GetModel(&context, {}, &model);
  if (!status.ok()) return Explain(status);
  knows_server_ = true;
  return model;
}

absl::Status GrpcClient::Explain(const grpc::Status& status) const {
  const std::string& server = connection_.server;
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    return absl::UnauthenticatedError(fmt::format(
        "{}; give the key with --api-key, or as STAGECOACH_API_KEY", status.error_message()));
  }
  if (CutOf(status) == CallEnd::Cut::kNone) return FromGrpc(status);
  const bool tls = connection_.tls || !connection_.tls_ca.empty();
  switch (Probe(server)) {
    case Spoken::kHttp:
      return absl::UnavailableError(
          fmt::format("{0} speaks HTTP, not gRPC: give the HOST:PORT after grpc= in the server's "
                      "ready line, or for chat and generate --server http://{0}",
                      server));
    case Spoken::kTls:
      if (!tls) {
        return absl::UnavailableError(
            fmt::format("{} requires TLS: add --tls, or --tls-ca FILE for your own certificate; if "
                        "it is the HTTPS port, give its URL, https://{}",
                        server, server));
      }
      return absl::UnavailableError(
          fmt::format("no TLS connection to {}: check that an authority in --tls-ca has signed its "
                      "certificate, and that the certificate has this name ({})",
                      server, status.error_message()));
    case Spoken::kHttp2:
      if (tls) {
        return absl::UnavailableError(
            fmt::format("{} speaks gRPC without TLS: omit --tls and --tls-ca", server));
      }
      break;
    case Spoken::kOther:
      return absl::UnavailableError(fmt::format("the program at {} is not a stagecoach server ({})",
                                                server, status.error_message()));
    case Spoken::kNothing:
      break;
  }
  return absl::UnavailableError(
      fmt::format("no server answers at {}; start one with `stagecoach serve MODEL`, or give its "
                  "address with --server HOST:PORT",
                  server));
}

}  // namespace stagecoach::cli
