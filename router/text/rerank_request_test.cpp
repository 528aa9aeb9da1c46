#include "router/text/rerank_request.h"

#include <string>

#include "catch2/catch_test_macros.hpp"
#include "router/text/testing/test_model.h"

namespace stagecoach::router {
namespace {

TEST_CASE("a model without the form of a reranker is refused, with the reason") {
  v1::RerankRequest request;
  request.set_query("q");
  request.add_documents("d");
  const auto message = [&](const ServedModel& model) {
    const absl::Status status = CheckRerank(model, request);
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  ServedModel model = TestModel();
  CHECK(message(model).find("LlamaForCausalLM") != std::string::npos);
  model.spec.architecture = "Qwen3ForCausalLM";
  CHECK(message(model).find("has no token") != std::string::npos);
  model.spec.pooling.emplace();
  CHECK(message(model).find("is an embedding model") != std::string::npos);
}

TEST_CASE("the score is the probability of yes against no") {
  const float same[] = {2, 2}, yes[] = {9, -9}, no[] = {-200, 200};
  CHECK(RerankScore(same) == 0.5f);
  CHECK(RerankScore(yes) > 0.99f);
  CHECK(RerankScore(no) == 0);
}

}  // namespace
}  // namespace stagecoach::router
