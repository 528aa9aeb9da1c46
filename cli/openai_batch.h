// OpenAI's batch files: requests are {"custom_id", "method", "url", "body"}, results have OpenAI's
// output form.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "cli/batch_line.h"
#include "cli/completion.h"

namespace stagecoach::cli {

bool IsOpenAiLine(const boost::json::object& line);

// Accepts lines for /v1/chat/completions and /v1/completions. INVALID_ARGUMENT names a field that
// is not supported.
absl::StatusOr<BatchRequest> ParseOpenAiLine(const boost::json::object& line);

// Sets the sampling parameters from OpenAI's "response_format". INVALID_ARGUMENT for an unsupported
// form.
absl::Status SetResponseFormat(const boost::json::value& format, v1::SamplingParams& sampling);

// {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": null}
boost::json::object OpenAiResult(size_t index, const LineName& name, const BatchRequest& request,
                                 const Completion& completion, const std::string& model);
boost::json::object OpenAiError(size_t index, const LineName& name, const absl::Status& status);

}  // namespace stagecoach::cli
