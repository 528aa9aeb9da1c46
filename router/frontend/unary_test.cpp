// Tests the unary calls, and the input of Chat.
#include <string>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "router/frontend/testing/front_house.h"

namespace stagecoach::router {
namespace {

TEST_CASE("Tokenize and Detokenize convert text to ids and back") {
  FrontHouse house;
  v1::TokenizeRequest request;
  v1::TokenizeResponse tokens;
  request.set_text("Grüße, 世界");
  request.set_add_special_tokens(false);
  {
    grpc::ClientContext context;
    REQUIRE(house.stub->Tokenize(&context, request, &tokens).ok());
  }
  CHECK(tokens.text() == request.text());
  v1::DetokenizeRequest back;
  *back.mutable_token_ids() = tokens.token_ids();
  v1::DetokenizeResponse text;
  {
    grpc::ClientContext context;
    REQUIRE(house.stub->Detokenize(&context, back, &text).ok());
  }
  CHECK(text.text() == request.text());
  back.add_token_ids(100000);
  grpc::ClientContext context;
  const grpc::Status status = house.stub->Detokenize(&context, back, &text);
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("a chat can be tokenized, and generation uses the same ids") {
  FrontHouse house;
  v1::ChatRequest chat;
  v1::ChatMessage& message = *chat.add_messages();
  message.set_role("user");
  message.set_content("Hello");
  chat.mutable_sampling()->set_max_tokens(4);
  v1::TokenizeRequest request;
  *request.mutable_chat() = chat;
  v1::TokenizeResponse tokens;
  {
    grpc::ClientContext context;
    REQUIRE(house.stub->Tokenize(&context, request, &tokens).ok());
  }
  CHECK(tokens.text() == "<|start|>user: Hello<|end|><|start|>assistant: ");
  grpc::ClientContext context;
  const auto reader = house.stub->Chat(&context, chat);
  v1::GenerateResponse first;
  v1::GenerateResponse rest;
  REQUIRE(reader->Read(&first));
  while (reader->Read(&rest)) {
  }
  CHECK(reader->Finish().ok());
  CHECK(
      std::vector<int32_t>(first.prompt().token_ids().begin(), first.prompt().token_ids().end()) ==
      std::vector<int32_t>(tokens.token_ids().begin(), tokens.token_ids().end()));
}

TEST_CASE("the model is listed with the current state of its pipeline") {
  FrontHouse house({.hold_results = true});
  v1::GenerateRequest generate;
  generate.set_text("Hello");
  grpc::ClientContext generate_context;
  const auto reader = house.stub->Generate(&generate_context, generate);
  house.WaitUntilRunning(1);
  v1::Model model;
  {
    grpc::ClientContext context;
    REQUIRE(house.stub->GetModel(&context, {}, &model).ok());
  }
  CHECK(model.id() == "test-model");
  CHECK(model.n_layers() == 4);
  CHECK(model.max_model_len() == 256);
  CHECK(model.has_chat_template());
  CHECK(model.stages_size() == 1);
  CHECK(model.kv().block_tokens() == 16);
  CHECK(model.kv().groups(0).total_blocks() == 600);
  CHECK(model.kv().groups(0).free_blocks() < 600);
  CHECK(model.scheduler().running() == 1);
  v1::ListModelsResponse list;
  {
    grpc::ClientContext context;
    REQUIRE(house.stub->ListModels(&context, {}, &list).ok());
  }
  REQUIRE(list.models_size() == 1);
  CHECK(list.models(0).id() == "test-model");
  v1::GetModelRequest other;
  other.set_model("other");
  grpc::ClientContext context;
  const grpc::Status status = house.stub->GetModel(&context, other, &model);
  CHECK(status.error_code() == grpc::StatusCode::NOT_FOUND);
  generate_context.TryCancel();
  reader->Finish();
}

TEST_CASE("the health status follows the server") {
  FrontHouse house;
  const auto health = grpc::health::v1::Health::NewStub(
      MakeChannel(house.server->address(), kMaxClientMessageBytes));
  for (const char* service : {"", "stagecoach.v1.Inference"}) {
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    grpc::ClientContext context;
    REQUIRE(health->Check(&context, request, &response).ok());
    CHECK(response.status() == grpc::health::v1::HealthCheckResponse::SERVING);
  }
  house.server->SetNotServing();
  grpc::health::v1::HealthCheckResponse response;
  grpc::ClientContext context;
  REQUIRE(health->Check(&context, {}, &response).ok());
  CHECK(response.status() == grpc::health::v1::HealthCheckResponse::NOT_SERVING);
}

TEST_CASE("an address in use is refused") {
  FrontHouse house;
  const auto second =
      GrpcServer::Start(house.server->address(), house.access, house.frontend.get());
  REQUIRE(absl::IsUnavailable(second.status()));
  CHECK(second.status().message().find(house.server->address()) != std::string::npos);
}

}  // namespace
}  // namespace stagecoach::router
