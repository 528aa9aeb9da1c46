// Errors in the forms of OpenAI's and Anthropic's APIs.
#pragma once

#include <cstdint>
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

enum class ErrorForm : uint8_t {
  kOpenAi,     // {"error": {"message", "type", "param", "code"}}
  kAnthropic,  // {"type": "error", "error": {"type", "message"}}
};

// The form that clients of a path expect.
ErrorForm ErrorFormOf(std::string_view path);

// With the matching HTTP status and Retry-After.
HttpResponse ErrorResponse(const absl::Status& status, ErrorForm form = ErrorForm::kOpenAi);
// Only the JSON, for an error inside a stream.
std::string ErrorJson(const absl::Status& status, ErrorForm form = ErrorForm::kOpenAi);

// For errors in the HTTP itself. `code` may be empty.
HttpResponse HttpErrorResponse(int http_status, std::string_view message, std::string_view code,
                               ErrorForm form = ErrorForm::kOpenAi);

}  // namespace stagecoach::router::http
