#include "common/rpc/health.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "common/rpc/server.h"
#include "common/rpc/status.h"

namespace stagecoach {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

struct Fixture {
  Fixture() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    ApplyServerDefaults(builder, kMaxClientMessageBytes);
    builder.RegisterService(&health);
    server = builder.BuildAndStart();
    stub =
        Health::NewStub(MakeChannel("127.0.0.1:" + std::to_string(port), kMaxClientMessageBytes));
  }
  ~Fixture() {
    health.Shutdown();
    server->Shutdown();
  }

  HealthService health;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Health::Stub> stub;
};

TEST_CASE("Check returns the status, and NOT_FOUND for an unknown service") {
  Fixture f;
  HealthCheckResponse response;
  {
    grpc::ClientContext context;
    REQUIRE(f.stub->Check(&context, {}, &response).ok());
    CHECK(response.status() == HealthCheckResponse::NOT_SERVING);
  }
  f.health.SetServing("", true);
  {
    grpc::ClientContext context;
    REQUIRE(f.stub->Check(&context, {}, &response).ok());
    CHECK(response.status() == HealthCheckResponse::SERVING);
  }
  HealthCheckRequest unknown;
  unknown.set_service("nobody");
  grpc::ClientContext context;
  CHECK(f.stub->Check(&context, unknown, &response).error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("Watch sends every change and ends with the server") {
  Fixture f;
  grpc::ClientContext context;
  auto reader = f.stub->Watch(&context, HealthCheckRequest());
  HealthCheckResponse response;
  REQUIRE(reader->Read(&response));
  CHECK(response.status() == HealthCheckResponse::NOT_SERVING);
  f.health.SetServing("", true);
  REQUIRE(reader->Read(&response));
  CHECK(response.status() == HealthCheckResponse::SERVING);
  f.health.Shutdown();
  CHECK(!reader->Read(&response));
  CHECK(reader->Finish().error_code() == grpc::StatusCode::UNAVAILABLE);
}

TEST_CASE("a status keeps its code and message through gRPC") {
  const absl::Status status = absl::ResourceExhaustedError("the queue is full");
  CHECK(FromGrpc(ToGrpc(status)) == status);
  CHECK(ToGrpc(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace stagecoach
