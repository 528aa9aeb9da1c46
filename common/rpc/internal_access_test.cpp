#include "common/rpc/internal_access.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "common/rpc/probe_service.h"
#include "common/rpc/server.h"
#include "common/secret.h"
#include "common/temp_dir.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "stagecoach/v1/stage.grpc.pb.h"

namespace stagecoach {
namespace {

using grpc::StatusCode;
using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// Counts the calls that reach it.
class Stage final : public v1::Stage::Service {
 public:
  std::atomic<int> n_calls{0};

 private:
  grpc::Status Stats(grpc::ServerContext*, const v1::StatsRequest*, v1::StatsResponse*) override {
    ++n_calls;
    return grpc::Status::OK;
  }
  grpc::Status Load(grpc::ServerContext*, const v1::LoadRequest*,
                    grpc::ServerWriter<v1::LoadProgress>*) override {
    ++n_calls;
    return grpc::Status::OK;
  }
  grpc::Status Step(grpc::ServerContext*,
                    grpc::ServerReaderWriter<v1::StepResponse, v1::StepRequest>*) override {
    ++n_calls;
    return grpc::Status::OK;
  }
};

class Worker {
 public:
  explicit Worker(const InternalAccess& access) {
    grpc::ServerBuilder builder;
    AddInternalPort(builder, "127.0.0.1:0", access, &port_);
    ApplyServerDefaults(builder, kMaxInternalMessageBytes);
    builder.RegisterService(&stage_);
    builder.RegisterCallbackGenericService(&probe_);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  ~Worker() { server_->Shutdown(); }

  std::shared_ptr<grpc::Channel> Channel(const InternalAccess& access) const {
    return MakeInternalChannel("127.0.0.1:" + std::to_string(port_), access,
                               kMaxInternalMessageBytes);
  }
  // Makes a unary call, a server-streaming call and a bidirectional one; checks that they agree.
  StatusCode Call(const InternalAccess& access) const {
    const auto stub = v1::Stage::NewStub(Channel(access));
    grpc::ClientContext unary, load, step;
    v1::StatsResponse stats;
    const StatusCode code = stub->Stats(&unary, {}, &stats).error_code();
    CHECK(stub->Load(&load, {})->Finish().error_code() == code);
    const auto stream = stub->Step(&step);
    v1::StepResponse response;
    CHECK_FALSE(stream->Read(&response));
    CHECK(stream->Finish().error_code() == code);
    return code;
  }
  ProbeService& probe() { return probe_; }
  int n_calls() const { return stage_.n_calls; }

 private:
  Stage stage_;
  ProbeService probe_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

InternalAccess WithSecret(const std::string& secret) {
  InternalAccess access;
  access.secret = secret;
  return access;
}

TEST_CASE("only calls with the secret reach a worker, whatever their kind") {
  const InternalAccess ours = WithSecret(MakeSecret());
  const Worker worker(ours);
  CHECK(worker.Call({}) == StatusCode::UNAUTHENTICATED);
  CHECK(worker.Call(WithSecret(MakeSecret())) == StatusCode::UNAUTHENTICATED);
  CHECK(worker.Call(WithSecret(ours.secret.substr(1))) == StatusCode::UNAUTHENTICATED);
  CHECK(worker.n_calls() == 0);
  CHECK(worker.Call(ours) == StatusCode::OK);
  CHECK(worker.n_calls() == 3);
}

TEST_CASE("a worker without a secret accepts every call") {
  const Worker worker({});
  CHECK(worker.Call({}) == StatusCode::OK);
  CHECK(worker.Call(WithSecret(MakeSecret())) == StatusCode::OK);
}

TEST_CASE("without the secret, a client can ask only for health") {
  Worker worker(WithSecret(MakeSecret()));
  const auto stub = Health::NewStub(worker.Channel({}));
  const auto check = [&](const std::string& service) {
    HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    grpc::ClientContext context;
    CHECK(stub->Check(&context, request, &response).ok());
    return response.status();
  };
  CHECK(check("") == HealthCheckResponse::NOT_SERVING);
  worker.probe().SetServing(true);
  CHECK(check("") == HealthCheckResponse::SERVING);
  CHECK(check("stagecoach.v1.Stage") == HealthCheckResponse::SERVING);
  CHECK(check(std::string(8 << 20, 'a')) == HealthCheckResponse::SERVING);  // it is not read
  grpc::ClientContext context;
  HealthCheckResponse response;
  const auto watch = stub->Watch(&context, {});
  CHECK_FALSE(watch->Read(&response));
  CHECK(watch->Finish().error_code() == StatusCode::UNAUTHENTICATED);
}

// A certificate authority for tests, and the certificates that it signs.
class Authority {
 public:
  explicit Authority(const TempDir& dir, std::string name) : dir_(dir), name_(std::move(name)) {
    Run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
        "/CN=" +
        name_ + " -keyout " + name_ + ".key -out " + name_ + ".pem");
  }
  InternalAccess Sign(const std::string& peer, const std::string& names) const {
    Run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=" + peer +
        " -keyout " + peer + ".key -out " + peer + ".csr");
    std::ofstream(dir_.File(peer + ".ext")) << "subjectAltName=" << names << "\n";
    Run("openssl x509 -req -days 2 -in " + peer + ".csr -CA " + name_ + ".pem -CAkey " + name_ +
        ".key -CAcreateserial -extfile " + peer + ".ext -out " + peer + ".pem");
    InternalFlags flags;
    flags.tls_cert = dir_.File(peer + ".pem");
    flags.tls_key = dir_.File(peer + ".key");
    flags.tls_ca = dir_.File(name_ + ".pem");
    auto access = ReadInternalAccess(flags);
    REQUIRE(access.ok());
    return *access;
  }

 private:
  void Run(const std::string& command) const {
    const std::string line = "cd " + dir_.path() + " && " + command + " 2>openssl.log";
    INFO(line);
    REQUIRE(std::system(line.c_str()) == 0);
  }

  const TempDir& dir_;
  const std::string name_;
};

TEST_CASE("with TLS both sides need a certificate of their authority, and calls need the secret") {
  const TempDir dir;
  const Authority ours(dir, "ours"), theirs(dir, "theirs");
  InternalAccess worker_access = ours.Sign("worker", "IP:127.0.0.1");
  worker_access.secret = MakeSecret();
  const Worker worker(worker_access);
  InternalAccess router = ours.Sign("router", "DNS:router");
  CHECK(worker.Call(router) == StatusCode::UNAUTHENTICATED);
  router.secret = worker_access.secret;
  CHECK(worker.Call(router) == StatusCode::OK);

  InternalAccess stranger = theirs.Sign("stranger", "DNS:router");
  stranger.secret = worker_access.secret;
  stranger.tls->ca = worker_access.tls->ca;
  CHECK(worker.Call(stranger) == StatusCode::UNAVAILABLE);
  CHECK(worker.Call(WithSecret(worker_access.secret)) == StatusCode::UNAVAILABLE);  // no TLS
  InternalAccess misled = router;  // a worker with another authority must not get the secret
  misled.tls->ca = theirs.Sign("other", "DNS:other").tls->ca;
  CHECK(worker.Call(misled) == StatusCode::UNAVAILABLE);
  CHECK(worker.n_calls() == 3);
}

TEST_CASE("the certificate must name the address's host or the configured TLS name") {
  const TempDir dir;
  const Authority ours(dir, "ours");
  const Worker worker(ours.Sign("worker", "DNS:stage.example"));
  InternalAccess router = ours.Sign("router", "DNS:router");
  CHECK(worker.Call(router) == StatusCode::UNAVAILABLE);
  router.tls_name = "stage.example";
  CHECK(worker.Call(router) == StatusCode::OK);
}

TEST_CASE("a worker that other machines can reach needs a secret or an explicit opt-out") {
  const InternalAccess secret = WithSecret(MakeSecret());
  for (const char* address :
       {"0.0.0.0:9100", "[::]:9100", "10.0.0.1:9100", "worker-0:9100", "127.example.com:9100"}) {
    const absl::Status status = CheckListen(address, {}, false);
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(status.message().find("--secret-file") != std::string::npos);
    CHECK(CheckListen(address, secret, false).ok());
    CHECK(CheckListen(address, {}, true).ok());
  }
  for (const char* address : {"127.0.0.1:0", "localhost:9100", "[::1]:9100", "unix:/tmp/worker"}) {
    CHECK(CheckListen(address, {}, false).ok());
  }
}

TEST_CASE("for a bad secret or PEM file, the error names the flag") {
  const TempDir dir;
  dir.Write("short", "abc\n");
  InternalFlags flags;
  flags.secret_file = dir.File("short");
  CHECK(ReadInternalAccess(flags).status().message().find("--secret-file") != std::string::npos);
  flags.secret_file.clear();
  flags.tls_cert = flags.tls_key = flags.tls_ca = dir.File("short");
  CHECK(ReadInternalAccess(flags).status().message().find("--internal-tls-cert") !=
        std::string::npos);
}

}  // namespace
}  // namespace stagecoach
