#include "router/frontend/http/pooled_request.h"

#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

EmbeddingsForm Embeddings(std::string_view body) {
  auto form = ParseEmbeddings(body);
  INFO(form.status());
  REQUIRE(form.ok());
  return *std::move(form);
}

TEST_CASE("input has four forms") {
  CHECK(Embeddings(R"({"input": "a"})").request.input(0).text() == "a");
  const EmbeddingsForm texts = Embeddings(R"({"input": ["a", "b"], "encoding_format": "base64"})");
  CHECK(texts.request.input_size() == 2);
  CHECK(texts.base64);
  const EmbeddingsForm ids = Embeddings(R"({"input": [5, 6], "dimensions": 3})");
  REQUIRE(ids.request.input_size() == 1);
  CHECK(ids.request.input(0).tokens().ids(1) == 6);
  CHECK(ids.request.dimensions() == 3);
  const EmbeddingsForm lists = Embeddings(R"({"input": [[5, 6], "a"], "priority": 2})");
  REQUIRE(lists.request.input_size() == 2);
  CHECK(lists.request.input(1).text() == "a");
  CHECK(lists.request.priority() == 2);
  CHECK_FALSE(lists.base64);
}

TEST_CASE("documents are strings or objects with a text") {
  const auto form = ParseRerank(
      R"({"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1, "return_documents": false})");
  REQUIRE(form.ok());
  CHECK(form->request.documents(1) == "b");
  CHECK(form->top_n == 1u);
  CHECK_FALSE(form->return_documents);
}

TEST_CASE("vectors come as numbers or in base64") {
  v1::EmbedResponse response;
  for (const float value : {0.25f, -1.5f, 1e-6f}) response.add_embeddings()->add_values(value);
  response.mutable_embeddings(0)->add_values(0.1f);
  response.mutable_usage()->set_prompt_tokens(7);
  EmbeddingsForm form;
  const json::value plain = json::parse(EmbeddingsJson(form, "m\"", "id", response));
  CHECK(plain.at("object") == "list");
  CHECK(plain.at("model") == "m\"");
  CHECK(plain.at("usage").at("total_tokens") == 7);
  REQUIRE(plain.at("data").as_array().size() == 3);
  CHECK(plain.at_pointer("/data/2/index") == 2);
  CHECK(plain.at_pointer("/data/0/embedding/0") == 0.25);
  CHECK(plain.at_pointer("/data/0/embedding/1").to_number<float>() == 0.1f);
  CHECK(plain.at_pointer("/data/2/embedding/0").to_number<float>() == 1e-6f);
  form.base64 = true;
  const json::value packed = json::parse(EmbeddingsJson(form, "m", "id", response));
  CHECK(packed.at_pointer("/data/1/embedding") == "AADAvw==");  // -1.5
}

TEST_CASE("the best documents come first, with the place that they had") {
  RerankForm form;
  for (const char* text : {"a", "b", "c"}) form.request.add_documents(text);
  v1::RerankResponse response;
  for (const float score : {0.5f, 0.75f, 0.5f}) response.add_scores(score);
  const auto indices = [&] {
    const json::value answer = json::parse(RerankJson(form, "m", "id", response));
    std::vector<int64_t> all;
    for (const json::value& one : answer.at("results").as_array()) {
      all.push_back(one.at("index").as_int64());
      CHECK(one.as_object().contains("document") == form.return_documents);
    }
    return all;
  };
  CHECK(indices() == std::vector<int64_t>{1, 0, 2});
  CHECK(json::parse(RerankJson(form, "m", "id", response)).at_pointer("/results/0/document/text") ==
        "b");
  form.top_n = 2;
  form.return_documents = false;
  CHECK(indices() == std::vector<int64_t>{1, 0});
}

}  // namespace
}  // namespace stagecoach::router::http
