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

std::string ErrorJson(const absl::Status& status) {
  const Kind& kind = KindOf(status);
  const std::string message(status.message());
  const std::string code = ErrorCode(status);
  // Set for an unknown model too, as OpenAI does.
  return Body(message, kind.type, kind.http_status < 500 ? FieldOf(message) : "",
              code.empty() ? kind.code : code);
}

HttpResponse ErrorResponse(const absl::Status& status) {
  HttpResponse response;
  response.status = KindOf(status).http_status;
  response.body = ErrorJson(status);
  if (response.status == 429 || response.status == 503) {
    response.fields.emplace_back("Retry-After", fmt::format("{}", RetryAfterS(status)));
  }
  if (response.status == 401) response.fields.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse HttpErrorResponse(int http_status, std::string_view message, std::string_view code) {
  HttpResponse response;
  response.status = http_status;
  response.body = Body(message, http_status < 500 ? kInvalidRequest : kServerError, "", code);
  if (http_status == 503) {
    response.fields.emplace_back("Retry-After", fmt::format("{}", kRetryAfterS));
  }
  return response;
}

}  // namespace stagecoach::router::http
