// Parses the lines of a batch file. A line is a request in this program's own format or in
// OpenAI's.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

using BatchRequest = std::variant<v1::GenerateRequest, v1::ChatRequest>;

// Identifies a line's result.
struct LineName {
  std::string key;          // "id" or "custom_id"; empty: the line has neither
  boost::json::value name;  // the value in the line: a string or a number
  // The line has OpenAI's form {"custom_id", "method", "url", "body"}; its result uses OpenAI's
  // form too.
  bool is_openai = false;
};

struct BatchLine {
  BatchRequest request;
  LineName name;
};

// A line must have one of "prompt", "prompt_ids" and "messages". Every other key except "id" and
// "custom_id" names a field of the request or of its sampling parameters in the protocol, or is
// OpenAI's "response_format". The message of INVALID_ARGUMENT says what is wrong.
absl::StatusOr<BatchLine> ParseBatchLine(std::string_view line);

// Reads only the name. The key is empty if the line is not a JSON object.
LineName NameOfLine(std::string_view line);

const v1::SamplingParams& SamplingOf(const BatchRequest& request);

}  // namespace stagecoach::cli
