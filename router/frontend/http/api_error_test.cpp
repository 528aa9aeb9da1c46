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

TEST_CASE("a status keeps its own error code under another field") {
  const absl::Status status =
      WithErrorCode(absl::InvalidArgumentError("prompt: too long"), kContextLengthExceeded);
  const json::object error = Error(ErrorResponse(WithField(status, "messages")));
  CHECK(error.at("code") == "context_length_exceeded");
  CHECK(error.at("param") == "messages");
}

}  // namespace
}  // namespace stagecoach::router::http
