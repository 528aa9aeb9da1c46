#include "cli/client.h"

#include <catch2/catch_test_macros.hpp>

#include "cli/fake_server.h"

namespace stagecoach::cli {
namespace {

TEST_CASE("A stream arrives piece by piece") {
  FakeServer server([](const v1::GenerateRequest& request, FakeServer::Writer& writer) {
    v1::GenerateResponse piece;
    piece.set_text(request.text());
    writer.Write(piece);
    writer.Write(LastPiece("!"));
    return grpc::Status::OK;
  });
  const Client client(server.address());
  v1::GenerateRequest request;
  request.set_text("hello");
  std::string text;
  grpc::ClientContext context;
  CHECK(
      client.Stream(context, request, [&](const auto& piece) { text += piece.text() + "|"; }).ok());
  CHECK(text == "hello|!|");
}

TEST_CASE("What the server says is passed on") {
  FakeServer server([](const v1::GenerateRequest&, FakeServer::Writer&) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "stage 1 was lost");
  });
  grpc::ClientContext context;
  const absl::Status status =
      Client(server.address()).Stream(context, v1::GenerateRequest(), [](const auto&) {});
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message() == "stage 1 was lost");
}

TEST_CASE("An address where nobody answers is named, with the way to a server") {
  std::string address;
  {
    FakeServer server([](const auto&, auto&) { return grpc::Status::OK; });
    address = server.address();
  }
  const absl::Status status = Client(address).GetModel().status();
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message().find(address) != std::string::npos);
  CHECK(status.message().find("stagecoach serve MODEL") != std::string::npos);
}

}  // namespace
}  // namespace stagecoach::cli
