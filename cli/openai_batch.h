// OpenAI's batch files: requests as {"custom_id", "method", "url", "body"}, results in its output
// form.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "cli/batch_line.h"
#include "cli/completion.h"

namespace stagecoach::cli {

bool IsOpenAiLine(const boost::json::object& line);

// Takes lines of /v1/chat/completions and /v1/completions. INVALID_ARGUMENT names a field that is
// not known here.
absl::StatusOr<BatchRequest> ParseOpenAiLine(const boost::json::object& line);

// OpenAI's field of that name. INVALID_ARGUMENT for a form that there is not.
absl::Status SetResponseFormat(const boost::json::value& format, v1::SamplingParams& sampling);

// {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": null}
boost::json::object OpenAiResult(size_t index, const LineName& name, const BatchRequest& request,
                                 const Completion& completion, const std::string& model);
boost::json::object OpenAiError(size_t index, const LineName& name, const absl::Status& status);

}  // namespace stagecoach::cli
