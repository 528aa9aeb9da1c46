#include "cli/drill/requests.h"

#include <fmt/format.h>

namespace stagecoach::drill {
namespace {

// A list so long that max_tokens ends it.
constexpr char kLongJson[] =
    R"({"type": "object", "properties": {"stops": {"type": "array", "minItems": 1000,)"
    R"("items": {"type": "string", "maxLength": 20}}}, "required": ["stops"],)"
    R"("additionalProperties": false})";
constexpr char kLongText[] = "[a-z ]{10000}";

void SetKind(size_t i, v1::SamplingParams& sampling) {
  sampling.set_temperature(1);
  switch (i % 7) {
    case 0:
      sampling.set_temperature(0);
      break;
    case 1:
      break;  // the seed alone
    case 2:
      sampling.set_presence_penalty(0.5);
      sampling.set_repetition_penalty(1.2);
      break;
    case 3:
      sampling.set_logprobs(3);
      sampling.set_top_p(0.9);
      break;
    case 4:
      sampling.mutable_grammar()->set_regex(kLongText);
      break;
    case 5:
      sampling.mutable_grammar()->set_json_schema(kLongJson);
      break;
    case 6:
      sampling.set_n(2);
      break;
  }
}

}  // namespace

std::vector<bench::Request> MixedRequests(size_t n, uint32_t n_tokens) {
  std::vector<bench::Request> requests;
  for (size_t i = 0; i < n; ++i) {
    v1::GenerateRequest request;
    request.set_text(
        fmt::format("When does the next coach leave after {}:{:02}? ", 6 + i % 16, i % 60));
    v1::SamplingParams& sampling = *request.mutable_sampling();
    sampling.set_max_tokens(n_tokens);
    sampling.set_ignore_eos(true);
    sampling.set_seed(i);
    SetKind(i, sampling);
    requests.emplace_back(std::move(request));
  }
  return requests;
}

}  // namespace stagecoach::drill
