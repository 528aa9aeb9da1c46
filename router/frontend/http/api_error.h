// Errors in the form of OpenAI's API.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// The field that one of our error messages is about: "sampling.top_p" of "sampling.top_p: 7 is not
// ...", "messages" of "messages, as tokens[3]: ...". Empty: none.
std::string_view FieldOf(std::string_view message);

// The same status with its field name replaced.
absl::Status WithField(const absl::Status& status, std::string_view field);

// {"error": {"message", "type", "param", "code"}}, with the matching HTTP status and Retry-After.
HttpResponse ErrorResponse(const absl::Status& status);
// Only the JSON, for an error inside a stream.
std::string ErrorJson(const absl::Status& status);

// For errors in the HTTP itself. `code` may be empty.
HttpResponse HttpErrorResponse(int http_status, std::string_view message, std::string_view code);

}  // namespace stagecoach::router::http
