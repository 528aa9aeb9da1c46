#include "router/frontend/http/api_error.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <iterator>

#include "router/access/retry_after.h"
#include "router/text/error_code.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

constexpr char kInvalidRequest[] = "invalid_request_error";
constexpr char kServerError[] = "server_error";

// Anthropic's API has a status of its own for an overloaded server.
constexpr int kOverloaded = 529;

struct Kind {
  absl::StatusCode status;
  int http_status;
  const char* type;
  const char* code;  // empty: none
};

constexpr Kind kKinds[] = {
    {absl::StatusCode::kInvalidArgument, 400, kInvalidRequest, ""},
    {absl::StatusCode::kFailedPrecondition, 400, kInvalidRequest, ""},
    {absl::StatusCode::kUnauthenticated, 401, kInvalidRequest, "invalid_api_key"},
    {absl::StatusCode::kPermissionDenied, 403, kInvalidRequest, ""},
    {absl::StatusCode::kNotFound, 404, kInvalidRequest, "model_not_found"},
    {absl::StatusCode::kAlreadyExists, 409, kInvalidRequest, "stream_exists"},
    {absl::StatusCode::kOutOfRange, 410, kInvalidRequest, "stream_no_longer_kept"},
    {absl::StatusCode::kResourceExhausted, 429, "rate_limit_error", "rate_limit_exceeded"},
    {absl::StatusCode::kCancelled, 499, kInvalidRequest, "cancelled"},
    {absl::StatusCode::kUnavailable, 503, kServerError, "service_unavailable"},
    {absl::StatusCode::kDeadlineExceeded, 504, kServerError, "timeout"},
    {absl::StatusCode::kInternal, 500, kServerError, "internal_error"},
};

const Kind& KindOf(const absl::Status& status) {
  for (const Kind& kind : kKinds) {
    if (kind.status == status.code()) return kind;
  }
  return *std::prev(std::end(kKinds));
}

json::value TextOrNull(std::string_view text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

const char* AnthropicType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 504:
      return "timeout_error";
    case 503:
    case kOverloaded:
      return "overloaded_error";
    default:
      return http_status < 500 ? kInvalidRequest : "api_error";
  }
}

std::string AnthropicBody(int http_status, std::string_view message) {
  return json::serialize(json::object{
      {"type", "error"},
      {"error", json::object{{"type", AnthropicType(http_status)}, {"message", message}}}});
}

int StatusIn(ErrorForm form, int http_status) {
  return form == ErrorForm::kAnthropic && http_status == 503 ? kOverloaded : http_status;
}

std::string Body(std::string_view message, std::string_view type, std::string_view param,
                 std::string_view code) {
  return json::serialize(json::object{{"error", json::object{{"message", message},
                                                             {"type", type},
                                                             {"param", TextOrNull(param)},
                                                             {"code", TextOrNull(code)}}}});
}

}  // namespace

std::string_view FieldOf(std::string_view message) {
  size_t end = 0;
  const auto in_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '[' ||
           c == ']';
  };
  while (end < message.size() && in_name(message[end])) ++end;
  const std::string_view rest = message.substr(end);
  return rest.starts_with(": ") || rest.starts_with(", as tokens") ? message.substr(0, end) : "";
}

absl::Status WithField(const absl::Status& status, std::string_view field) {
  const std::string message(status.message());
  absl::Status renamed(status.code(),
                       fmt::format("{}{}", field, message.substr(FieldOf(message).size())));
  status.ForEachPayload(
      [&renamed](auto url, const absl::Cord& payload) { renamed.SetPayload(url, payload); });
  return renamed;
}

ErrorForm ErrorFormOf(std::string_view path) {
  return path.starts_with("/v1/messages") ? ErrorForm::kAnthropic : ErrorForm::kOpenAi;
}

std::string ErrorJson(const absl::Status& status, ErrorForm form) {
  const Kind& kind = KindOf(status);
  const std::string message(status.message());
  if (form == ErrorForm::kAnthropic) return AnthropicBody(kind.http_status, message);
  const std::string code = ErrorCode(status);
  // Set for an unknown model too, as OpenAI does.
  return Body(message, kind.type, kind.http_status < 500 ? FieldOf(message) : "",
              code.empty() ? kind.code : code);
}

HttpResponse ErrorResponse(const absl::Status& status, ErrorForm form) {
  const int http_status = KindOf(status).http_status;
  HttpResponse response;
  response.status = StatusIn(form, http_status);
  response.body = ErrorJson(status, form);
  if (http_status == 429 || http_status == 503) {
    response.fields.emplace_back("Retry-After", fmt::format("{}", RetryAfterS(status)));
  }
  if (response.status == 401) response.fields.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse HttpErrorResponse(int http_status, std::string_view message, std::string_view code,
                               ErrorForm form) {
  HttpResponse response;
  response.status = StatusIn(form, http_status);
  response.body = form == ErrorForm::kAnthropic
                      ? AnthropicBody(http_status, message)
                      : Body(message, http_status < 500 ? kInvalidRequest : kServerError, "", code);
  if (http_status == 503) {
    response.fields.emplace_back("Retry-After", fmt::format("{}", kRetryAfterS));
  }
  return response;
}

}  // namespace stagecoach::router::http
