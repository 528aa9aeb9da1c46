// Tests access control over gRPC, with a real server.
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <string>

#include "router/frontend/testing/front_house.h"

namespace stagecoach::router {
namespace {

std::shared_ptr<Access> Keys(const std::string& lines) {
  char path[] = "/tmp/access_test_keys_XXXXXX";
  const int fd = mkstemp(path);
  REQUIRE(write(fd, lines.data(), lines.size()) == static_cast<ssize_t>(lines.size()));
  close(fd);
  auto access = Access::Read({.api_keys = path, .tls_cert = "", .tls_key = ""});
  unlink(path);
  REQUIRE(access.ok());
  return *std::move(access);
}

struct KeyedHouse : FrontHouse {
  explicit KeyedHouse(const std::string& lines) : FrontHouse({}, Config(), {}, Keys(lines)) {}

  grpc::Status Tokenize(const std::string& key, grpc::ClientContext& context) {
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    v1::TokenizeRequest request;
    request.set_text("Hello there");
    v1::TokenizeResponse response;
    return stub->Tokenize(&context, request, &response);
  }
  grpc::StatusCode Tokenize(const std::string& key) {
    grpc::ClientContext context;
    return Tokenize(key, context).error_code();
  }

  grpc::StatusCode Generate(const std::string& key, const std::string& id) {
    v1::GenerateRequest request;
    request.set_text("Hello there");
    request.set_request_id(id);
    request.set_resumable(true);
    request.mutable_sampling()->set_max_tokens(3);
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + key);
    return Drain(*stub->Generate(&context, request));
  }
  grpc::StatusCode Resume(const std::string& key, const std::string& id) {
    v1::ResumeRequest request;
    request.set_request_id(id);
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + key);
    return Drain(*stub->Resume(&context, request));
  }
  grpc::StatusCode Cancel(const std::string& key, const std::string& id) {
    v1::CancelRequest request;
    request.set_request_id(id);
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + key);
    v1::CancelResponse response;
    return stub->Cancel(&context, request, &response).error_code();
  }

 private:
  static grpc::StatusCode Drain(grpc::ClientReader<v1::GenerateResponse>& reader) {
    v1::GenerateResponse message;
    while (reader.Read(&message)) {
    }
    return reader.Finish().error_code();
  }
};

TEST_CASE("no Inference method is open without a key") {
  KeyedHouse house("sk-one\n");
  const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
      v1::Inference::service_full_name());
  REQUIRE(service != nullptr);
  grpc::GenericStub stub(MakeChannel(house.server->address(), kMaxClientMessageBytes));
  for (int i = 0; i < service->method_count(); ++i) {
    INFO(service->method(i)->full_name());
    const std::string path =
        std::string("/") + v1::Inference::service_full_name() + "/" + service->method(i)->name();
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    const auto call = stub.PrepareCall(&context, path, &queue);
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(nullptr);
    REQUIRE(queue.Next(&tag, &ok));
    // The call ends without a message: the server does not wait for it.
    grpc::Status status;
    call->Finish(&status, nullptr);
    REQUIRE(queue.Next(&tag, &ok));
    CHECK(status.error_code() == grpc::StatusCode::UNAUTHENTICATED);
  }
}

TEST_CASE("a key in the metadata gives access and counts against its rate") {
  KeyedHouse house("sk-one\nsk-slow requests_per_minute=2\n");
  CHECK(house.Tokenize("sk-one") == grpc::StatusCode::OK);
  CHECK(house.Tokenize("") == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(house.Tokenize("sk-on") == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(house.Tokenize("sk-slow") == grpc::StatusCode::OK);
  CHECK(house.Tokenize("sk-slow") == grpc::StatusCode::OK);
  grpc::ClientContext context;
  const grpc::Status status = house.Tokenize("sk-slow", context);
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto wait = metadata.find("retry-after-ms");
  REQUIRE(wait != metadata.end());
  CHECK(std::stoi(std::string(wait->second.data(), wait->second.size())) > 1000);
}

TEST_CASE("only its tenant can use a resumable stream") {
  KeyedHouse house("sk-one\nsk-two\nsk-a tenant=team\nsk-b tenant=team\n");
  CHECK(house.Generate("sk-one", "x") == grpc::StatusCode::OK);
  CHECK(house.Resume("sk-two", "x") == grpc::StatusCode::NOT_FOUND);
  CHECK(house.Cancel("sk-two", "x") == grpc::StatusCode::NOT_FOUND);
  CHECK(house.Resume("sk-one", "x") == grpc::StatusCode::OK);
  CHECK(house.Cancel("sk-one", "x") == grpc::StatusCode::OK);
  CHECK(house.Generate("sk-a", "y") == grpc::StatusCode::OK);
  CHECK(house.Resume("sk-b", "y") == grpc::StatusCode::OK);
}

}  // namespace
}  // namespace stagecoach::router
