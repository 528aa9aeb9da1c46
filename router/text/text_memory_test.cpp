#include "router/text/text_memory.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "router/text/error_code.h"
#include "router/text/request_builder.h"
#include "router/text/testing/test_model.h"

namespace stagecoach::router {
namespace {

v1::GenerateRequest Text(size_t n_bytes) {
  v1::GenerateRequest request;
  request.set_text(std::string(n_bytes, 'a'));
  return request;
}

TEST_CASE("a text reserves memory while it is tokenized and returns it") {
  MemoryBudget budget(200 * kTextCost);
  ServedModel model = TestModel();
  model.memory = &budget;
  CHECK(BuildGeneration(model, Text(200)).ok());
  CHECK(budget.used_bytes() == 0);

  const absl::Status never = BuildGeneration(model, Text(201)).status();
  CHECK(absl::IsInvalidArgument(never));
  CHECK(never.message().find("text: 201 bytes") == 0);

  MemoryBudget::Lease other(&budget);
  REQUIRE(other.GrowTo(kTextCost));
  const absl::Status now = BuildGeneration(model, Text(200)).status();
  CHECK(absl::IsResourceExhausted(now));
  CHECK(BuildGeneration(model, Text(199)).ok());
}

TEST_CASE("a text that cannot fit in the context is refused by its length alone") {
  ServedModel model = TestModel();
  model.longest_token_bytes = 4;
  const size_t most = 4 * static_cast<size_t>(model.max_model_len);
  CHECK(CheckTextLength(model, "text", most).ok());
  const absl::Status status = BuildGeneration(model, Text(most + 1)).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(ErrorCode(status) == kContextLengthExceeded);
  CHECK(status.message().find("maximum context length") != absl::string_view::npos);
}

}  // namespace
}  // namespace stagecoach::router
