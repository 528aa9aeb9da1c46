// Lines of a batch file: requests of our own form, and OpenAI's.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

using BatchRequest = std::variant<v1::GenerateRequest, v1::ChatRequest>;

// By what its result is known.
struct LineName {
  std::string key;          // "id", "custom_id"; empty: the line has neither
  boost::json::value name;  // as it stands there, a string or a number
  bool is_openai = false;   // {"custom_id", "method", "url", "body"}: so is its result
};

struct BatchLine {
  BatchRequest request;
  LineName name;
};

// Needs one of "prompt", "prompt_ids" and "messages"; all else but "id" and "custom_id" is a field
// of the request or its sampling parameters, by its name in the protocol, or OpenAI's
// "response_format". INVALID_ARGUMENT says what is wrong.
absl::StatusOr<BatchLine> ParseBatchLine(std::string_view line);

// Only the name; none where the line is no object.
LineName NameOfLine(std::string_view line);

const v1::SamplingParams& SamplingOf(const BatchRequest& request);

}  // namespace stagecoach::cli
