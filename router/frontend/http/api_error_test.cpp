#include "router/frontend/http/api_error.h"

#include <boost/json.hpp>

#include "catch2/catch_test_macros.hpp"
#include "router/access/retry_after.h"
#include "router/text/error_code.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

json::object Error(const HttpResponse& response) {
  return json::parse(response.body).at("error").as_object();
}

std::string FieldValue(const HttpResponse& response, std::string_view name) {
  for (const auto& [field, value] : response.fields) {
    if (field == name) return value;
  }
  return "";
}

TEST_CASE("an error's field is the part before the colon if it is a name") {
  CHECK(FieldOf("sampling.top_p: 7 is too much") == "sampling.top_p");
  CHECK(FieldOf("messages[0].content: is empty") == "messages[0].content");
  CHECK(FieldOf("messages, as tokens[3]: token id 9") == "messages");
  CHECK(FieldOf("the request's body is not valid JSON: x") == "");
  CHECK(FieldOf("") == "");
  CHECK(FieldOf("word") == "");
  CHECK(WithField(absl::InvalidArgumentError("text, as tokens[1]: bad"), "prompt").message() ==
        "prompt, as tokens[1]: bad");
}

TEST_CASE("a status becomes an OpenAI error with an HTTP status") {
  const HttpResponse bad = ErrorResponse(absl::InvalidArgumentError("top_p: 7 is too much"));
  CHECK(bad.status == 400);
  const json::object error = Error(bad);
  CHECK(error.at("message") == "top_p: 7 is too much");
  CHECK(error.at("type") == "invalid_request_error");
  CHECK(error.at("param") == "top_p");
  CHECK(error.at("code").is_null());

  const HttpResponse missing = ErrorResponse(absl::NotFoundError("model: 'x' is not served"));
  CHECK(missing.status == 404);
  CHECK(Error(missing).at("code") == "model_not_found");
  CHECK(Error(missing).at("param") == "model");

  const HttpResponse full = ErrorResponse(absl::ResourceExhaustedError("queue: is full"));
  CHECK(full.status == 429);
  CHECK(FieldValue(full, "Retry-After") == "1");
  const auto slow = WithRetryAfter(absl::ResourceExhaustedError("wait"), 20);
  CHECK(FieldValue(ErrorResponse(slow), "Retry-After") == "20");

  CHECK(ErrorResponse(absl::UnavailableError("x")).status == 503);
  CHECK(Error(ErrorResponse(absl::UnavailableError("stage: lost"))).at("param").is_null());
  CHECK(ErrorResponse(absl::UnauthenticatedError("x")).status == 401);
  CHECK(ErrorResponse(absl::InternalError("x")).status == 500);
  CHECK(ErrorResponse(absl::DataLossError("x")).status == 500);
  for (int code = 1; code <= 16; ++code) {
    const int http = ErrorResponse(absl::Status(absl::StatusCode(code), "x")).status;
    CHECK(*ReasonPhrase(http) != 0);
  }
}

TEST_CASE("paths of Anthropic's API have its errors") {
  CHECK(ErrorFormOf("/v1/messages") == ErrorForm::kAnthropic);
  CHECK(ErrorFormOf("/v1/messages/count_tokens") == ErrorForm::kAnthropic);
  CHECK(ErrorFormOf("/v1/chat/completions") == ErrorForm::kOpenAi);
  CHECK(ErrorFormOf("") == ErrorForm::kOpenAi);
  const auto check = [](const HttpResponse& response, int status, const std::string& type) {
    CHECK(response.status == status);
    CHECK(*ReasonPhrase(status) != 0);
    CHECK(response.body ==
          R"({"type":"error","error":{"type":")" + type + R"(","message":"a: b"}})");
  };
  const auto of = [](absl::StatusCode code) {
    return ErrorResponse(absl::Status(code, "a: b"), ErrorForm::kAnthropic);
  };
  check(of(absl::StatusCode::kInvalidArgument), 400, "invalid_request_error");
  check(of(absl::StatusCode::kUnauthenticated), 401, "authentication_error");
  check(of(absl::StatusCode::kPermissionDenied), 403, "permission_error");
  check(of(absl::StatusCode::kNotFound), 404, "not_found_error");
  check(of(absl::StatusCode::kResourceExhausted), 429, "rate_limit_error");
  check(of(absl::StatusCode::kUnavailable), 529, "overloaded_error");
  check(of(absl::StatusCode::kInternal), 500, "api_error");
  CHECK(FieldValue(of(absl::StatusCode::kUnavailable), "Retry-After") == "1");
  CHECK(FieldValue(of(absl::StatusCode::kResourceExhausted), "Retry-After") == "1");
  const auto http = [](int status) {
    return HttpErrorResponse(status, "a: b", "", ErrorForm::kAnthropic);
  };
  check(http(413), 413, "request_too_large");
  check(http(503), 529, "overloaded_error");
  check(http(415), 415, "invalid_request_error");
}

TEST_CASE("a status keeps its own error code under another field") {
  const absl::Status status =
      WithErrorCode(absl::InvalidArgumentError("prompt: too long"), kContextLengthExceeded);
  const json::object error = Error(ErrorResponse(WithField(status, "messages")));
  CHECK(error.at("code") == "context_length_exceeded");
  CHECK(error.at("param") == "messages");
}

}  // namespace
}  // namespace stagecoach::router::http
