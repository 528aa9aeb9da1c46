// Embed and Rerank over gRPC.
#include "router/frontend/pooled_call.h"

#include <cmath>
#include <string>
#include <vector>

#include "router/frontend/testing/front_house.h"

namespace stagecoach::router {
namespace {

ServedModel EmbeddingModel() {
  ServedModel model = TestModel();
  model.spec.hidden_size = kPooledSize;
  model.spec.pooling = PoolingSpec{.mean = false, .normalize = true};
  return model;
}

FrontHouse MakeHouse(const FakeStageClient::Options& pipeline = {},
                     const FrontendOptions& frontend = {}) {
  return FrontHouse(pipeline, FrontHouse::Config(), frontend, std::make_shared<Access>(),
                    EmbeddingModel());
}

v1::EmbedRequest Texts(const std::vector<std::string>& texts) {
  v1::EmbedRequest request;
  for (const std::string& text : texts) request.add_input()->set_text(text);
  return request;
}

// The vector that the fake pipeline gives for a text.
std::vector<float> Expected(const std::string& text) {
  const auto input = BuildGeneration(TestModel(), [&] {
    v1::GenerateRequest request;
    request.set_text(text);
    return request;
  }());
  REQUIRE(input.ok());
  SequenceRequest sequence;
  sequence.prompt = input->prompt;
  sequence.sampling.mutable_pooling()->set_what(v1::SlotPooling::LAST_HIDDEN);
  std::vector<float> values = PooledAlone(sequence);
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  for (float& value : values) {
    value = static_cast<float>(value * (1 / std::sqrt(squares)));
  }
  return values;
}

TEST_CASE("each input gets its vector, in order") {
  FrontHouse house = MakeHouse({.max_delay_us = 200});
  const std::vector<std::string> texts = {"Hello", "The coach", "Hello, the coach leaves", "x"};
  v1::EmbedResponse response;
  grpc::ClientContext context;
  REQUIRE(house.stub->Embed(&context, Texts(texts), &response).ok());
  REQUIRE(response.embeddings_size() == 4);
  for (int i = 0; i < 4; ++i) {
    const auto& values = response.embeddings(i).values();
    CHECK(std::vector<float>(values.begin(), values.end()) == Expected(texts[i]));
  }
  CHECK(response.usage().prompt_tokens() > 4);
  CHECK(response.usage().completion_tokens() == 0);
  house.WaitUntilIdle();
}

TEST_CASE("one bad input refuses the request, and nothing of it runs on") {
  FrontHouse house = MakeHouse();
  v1::EmbedRequest request = Texts({"Hello", "x"});
  request.add_input()->mutable_tokens()->add_ids(100000);
  v1::EmbedResponse response;
  grpc::ClientContext context;
  const grpc::Status status = house.stub->Embed(&context, request, &response);
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(status.error_message().starts_with("input[2][0]: token id"));
  house.WaitUntilIdle();
  v1::RerankRequest rerank;
  v1::RerankResponse scores;
  grpc::ClientContext other;
  CHECK(house.stub->Rerank(&other, rerank, &scores).error_code() ==
        grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("a client that leaves ends its sequences") {
  FrontHouse house = MakeHouse({.hold_results = true});
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  v1::EmbedResponse response;
  const auto call = house.stub->AsyncEmbed(&context, Texts({"Hello", "x"}), &queue);
  grpc::Status status;
  call->Finish(&response, &status, &queue);
  house.WaitUntilRunning(2);
  context.TryCancel();
  void* tag = nullptr;
  bool ok = false;
  REQUIRE(queue.Next(&tag, &ok));
  CHECK(status.error_code() == grpc::StatusCode::CANCELLED);
  house.pipeline.ReleaseAll();
  house.WaitUntilIdle();
}

TEST_CASE("vectors beyond the memory for requests are refused") {
  FrontHouse house = MakeHouse({}, {.request_memory_bytes = kSmallRequestBytes + 1});
  v1::EmbedRequest request;
  for (int i = 0; i < 800; ++i) request.add_input()->mutable_tokens()->add_ids(5);
  v1::EmbedResponse response;
  grpc::ClientContext context;
  const grpc::Status status = house.stub->Embed(&context, request, &response);
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  house.WaitUntilIdle();
}

}  // namespace
}  // namespace stagecoach::router
