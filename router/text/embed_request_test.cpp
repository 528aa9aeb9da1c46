#include "router/text/embed_request.h"

#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/text/error_code.h"
#include "router/text/testing/test_model.h"

namespace stagecoach::router {
namespace {

ServedModel EmbeddingModel() {
  ServedModel model = TestModel();
  model.spec.hidden_size = 4;
  model.spec.pooling = PoolingSpec{.mean = false, .normalize = true};
  return model;
}

std::string Message(const absl::Status& status) {
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST_CASE("texts get the checkpoint's own tokens, ids are taken as they are") {
  const ServedModel model = EmbeddingModel();
  v1::EmbedRequest request;
  request.add_input()->set_text("Hello");
  request.add_input()->mutable_tokens()->add_ids(7);
  request.set_priority(3);
  REQUIRE(CheckEmbed(model, request).ok());
  const auto text = BuildEmbedding(model, request, 0);
  REQUIRE(text.ok());
  CHECK(*text->prompt == *model.tokenizer->Encode("Hello", true));
  CHECK(text->priority == 3);
  CHECK(text->sampling.max_tokens == 1);
  CHECK(text->sampling.slot.pooling().what() == v1::SlotPooling::LAST_HIDDEN);
  const auto ids = BuildEmbedding(model, request, 1);
  REQUIRE(ids.ok());
  CHECK(*ids->prompt == std::vector<int32_t>{7});
  ServedModel mean = EmbeddingModel();
  mean.spec.pooling->mean = true;
  CHECK(BuildEmbedding(mean, request, 1)->sampling.slot.pooling().what() ==
        v1::SlotPooling::MEAN_HIDDEN);
}

TEST_CASE("errors name the input") {
  const ServedModel model = EmbeddingModel();
  v1::EmbedRequest request;
  CHECK(Message(CheckEmbed(model, request)) == "input: is empty");
  request.add_input()->mutable_tokens()->add_ids(100000);
  CHECK(Message(BuildEmbedding(model, request, 0).status()).starts_with("input[0]: token id"));
  request.add_input()->mutable_tokens();
  CHECK(Message(BuildEmbedding(model, request, 1).status()) == "input[1]: is empty");
  v1::TokenIds& many = *request.add_input()->mutable_tokens();
  for (int i = 0; i < model.max_model_len; ++i) many.add_ids(5);
  const absl::Status too_long = BuildEmbedding(model, request, 2).status();
  CHECK(Message(too_long).starts_with("input[2]: 256 tokens; at most 255"));
  CHECK(ErrorCode(too_long) == kContextLengthExceeded);
  many.mutable_ids()->RemoveLast();
  CHECK(BuildEmbedding(model, request, 2).ok());
  request.set_dimensions(5);
  CHECK(Message(CheckEmbed(model, request)) == "dimensions: 5 is not in [1, 4]");
  request.set_dimensions(0);
  for (int i = 0; i < kMaxPooledInputs; ++i) request.add_input();
  CHECK(Message(CheckEmbed(model, request)).starts_with("input: 2051 inputs"));
}

TEST_CASE("each kind of model refuses the requests of the other") {
  v1::EmbedRequest embed;
  embed.add_input()->set_text("Hello");
  CHECK(Message(CheckEmbed(TestModel(), embed)).find("modules.json") != std::string::npos);
  v1::GenerateRequest generate;
  generate.set_text("Hello");
  CHECK(
      Message(BuildGeneration(EmbeddingModel(), generate).status()).find("is an embedding model") !=
      std::string::npos);
}

TEST_CASE("a vector is cut, then gets length 1 if the model's do") {
  ServedModel model = EmbeddingModel();
  v1::EmbedRequest request;
  const std::vector<float> values = {3, 4, 12, 0};
  const auto made = [&] {
    const v1::Embedding embedding = MakeEmbedding(model, request, values);
    return std::vector<float>(embedding.values().begin(), embedding.values().end());
  };
  CHECK(made() == std::vector<float>{3.0f / 13, 4.0f / 13, 12.0f / 13, 0});
  request.set_dimensions(2);
  CHECK(made() == std::vector<float>{0.6f, 0.8f});
  model.spec.pooling->normalize = false;
  CHECK(made() == std::vector<float>{3, 4});
}

}  // namespace
}  // namespace stagecoach::router
