#include <catch2/catch_test_macros.hpp>

#include "cli/fake_server.h"
#include "cli/grpc_client.h"

namespace stagecoach::cli {
namespace {

std::unique_ptr<GrpcClient> ClientOf(const std::string& address) {
  Connection connection;
  connection.server = address;
  auto client = GrpcClient::Make(connection);
  REQUIRE(client.ok());
  return *std::move(client);
}

TEST_CASE("A stream arrives in pieces") {
  FakeServer server([](const v1::GenerateRequest& request, FakeServer::Writer& writer) {
    v1::GenerateResponse piece;
    piece.set_text(request.text());
    writer.Write(piece);
    writer.Write(LastPiece("!"));
    return grpc::Status::OK;
  });
  const auto client = ClientOf(server.address());
  v1::GenerateRequest request;
  request.set_text("hello");
  std::string text;
  CHECK(client->Stream(
                  request, [&](const auto& piece) { text += piece.text() + "|"; }, nullptr)
            .ok());
  CHECK(text == "hello|!|");
}

TEST_CASE("The client passes on the server's error") {
  FakeServer server([](const v1::GenerateRequest&, FakeServer::Writer&) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "stage 1 was lost");
  });
  const absl::Status status =
      ClientOf(server.address())->Stream(v1::GenerateRequest(), [](const auto&) {}, nullptr);
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message() == "stage 1 was lost");
}

TEST_CASE("If no server answers, the error names the address and says how to start a server") {
  std::string address;
  {
    FakeServer server([](const auto&, auto&) { return grpc::Status::OK; });
    address = server.address();
  }
  const absl::Status status = ClientOf(address)->GetModel().status();
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message().find(address) != std::string::npos);
  CHECK(status.message().find("stagecoach serve MODEL") != std::string::npos);
}

TEST_CASE("Every call carries the API key, and a cancelled call ends") {
  FakeServer server([](const auto&, auto&) { return grpc::Status::OK; });
  Connection connection;
  connection.server = server.address();
  connection.api_key = "secret";
  const auto client = GrpcClient::Make(connection);
  REQUIRE(client.ok());
  Canceller canceller;
  const absl::Status status =
      (*client)->Stream(v1::GenerateRequest(), [](const auto&) {}, &canceller);
  CHECK(status.ok());
  CHECK(server.authorization() == "Bearer secret");
  canceller.Cancel();
  CHECK(
      absl::IsCancelled((*client)->Stream(v1::GenerateRequest(), [](const auto&) {}, &canceller)));
}

}  // namespace
}  // namespace stagecoach::cli
