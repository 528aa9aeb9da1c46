// Errors in the form of OpenAI's API.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// The field that a message of ours is about: "sampling.top_p" of "sampling.top_p: 7 is not ...",
// "messages" of "messages, as tokens[3]: ...". Empty when it is about none.
std::string_view FieldOf(std::string_view message);

// The same status with another name in the place of its field.
absl::Status WithField(const absl::Status& status, std::string_view field);

// {"error": {"message", "type", "param", "code"}}, with the HTTP status and Retry-After that belong
// to it.
HttpResponse ErrorResponse(const absl::Status& status);
// Only the JSON, for the middle of a stream.
std::string ErrorJson(const absl::Status& status);

// For what is wrong with the HTTP itself. `code` may be empty.
HttpResponse HttpErrorResponse(int http_status, std::string_view message, std::string_view code);

}  // namespace stagecoach::router::http
