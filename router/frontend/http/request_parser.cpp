#include "router/frontend/http/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <limits>
#include <utility>

#include "common/check.h"
#include "common/trace/trace.h"

namespace stagecoach::router::http {
namespace {

namespace beast = boost::beast;
using beast::http::field;
using Error = beast::http::error;

// When the library checks the end of an empty body again, it asserts that all of "0\r\n\r\n" is
// there. So wait for the rest. Chunk data that looks like this can wait as well: more always
// follows.
bool IsOpenLastChunk(std::string_view rest) { return rest.size() < 5 && rest.starts_with("0\r\n"); }

std::string Value(const beast::http::fields& fields, field name) {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : std::string(found->value());
}

std::string Value(const beast::http::fields& fields, const char* name) {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : std::string(found->value());
}

}  // namespace

struct RequestParser::Message {
  beast::http::request_parser<beast::http::string_body> parser;
};

RequestParser::RequestParser(const HttpLimits& limits, MemoryBudget* budget)
    : limits_(limits), budget_(budget) {
  Reset();
}

RequestParser::~RequestParser() = default;

void RequestParser::Reset() {
  message_ = std::make_unique<Message>();
  const size_t most = std::numeric_limits<uint32_t>::max();
  message_->parser.header_limit(static_cast<uint32_t>(std::min(limits_.max_header_bytes, most)));
  message_->parser.body_limit(limits_.max_body_bytes);
  lease_ = MemoryBudget::Lease(budget_);
  request_ = HttpRequest();
  state_ = State::kHeader;
}

size_t RequestParser::Fail(int status, std::string message) {
  state_ = State::kFailed;
  failure_ = {.status = status, .message = std::move(message)};
  return 0;
}

size_t RequestParser::Feed(std::string_view data) {
  auto& parser = message_->parser;
  size_t consumed = 0;
  // The library consumes one piece of the message per call.
  while (state_ == State::kHeader || state_ == State::kBody) {
    beast::error_code error;
    const std::string_view rest = data.substr(consumed);
    if (rest.empty()) break;
    if (state_ == State::kBody && parser.chunked() && IsOpenLastChunk(rest)) break;
    const size_t taken = parser.put(boost::asio::buffer(rest.data(), rest.size()), error);
    consumed += taken;
    if (error == Error::need_more) {
      // Body bytes are consumed at once. What needs more data is a header, a chunk's size line or
      // the trailer; the library does not limit the last two.
      if (rest.size() < limits_.max_header_bytes) break;
      error = Error::header_limit;
    }
    if (error == Error::header_limit) {
      return Fail(431, fmt::format("the request's {} is larger than {} bytes",
                                   state_ == State::kHeader ? "header" : "chunk line or trailer",
                                   limits_.max_header_bytes));
    }
    if (error == Error::body_limit) {
      return Fail(
          413, fmt::format("the request's body is larger than {} bytes", limits_.max_body_bytes));
    }
    if (error == Error::bad_version) return Fail(505, "only HTTP/1.1 and HTTP/1.0 are supported");
    if (error) return Fail(400, fmt::format("not an HTTP request: {}", error.message()));
    const size_t body_bytes = parser.get().body().size();
    if (!lease_.GrowTo(body_bytes)) {
      return Fail(503, "too many large requests are being received; try again later");
    }
    if (state_ == State::kHeader && parser.is_header_done()) {
      if (!CheckHeader()) return 0;
      ReadHeader();
      state_ = parser.is_done() ? State::kComplete : State::kBody;
      break;
    }
    if (parser.is_done()) state_ = State::kComplete;
  }
  return consumed;
}

bool RequestParser::CheckHeader() {
  const auto& request = message_->parser.get();
  const auto fail = [this](int status, std::string message) {
    Fail(status, std::move(message));
    return false;
  };
  if (request.version() != 11 && request.version() != 10) {
    return fail(505, "only HTTP/1.1 and HTTP/1.0 are supported");
  }
  if (request.version() == 11 && request.count(field::host) != 1) {
    return fail(400, "exactly one Host header field is required");
  }
  if (const size_t n_codings = request.count(field::transfer_encoding); n_codings > 0) {
    if (request.version() == 10) return fail(400, "HTTP/1.0 does not support Transfer-Encoding");
    if (n_codings > 1 ||
        !beast::iequals(request.find(field::transfer_encoding)->value(), "chunked")) {
      return fail(501, "chunked is the only transfer coding supported");
    }
  }
  const auto encoding = request.find(field::content_encoding);
  if (encoding != request.end() && !beast::iequals(encoding->value(), "identity")) {
    return fail(415, "content codings are not supported: send the body uncompressed");
  }
  const auto expect = request.find(field::expect);
  if (expect != request.end() && !beast::iequals(expect->value(), "100-continue")) {
    return fail(417, "100-continue is the only expectation supported");
  }
  return true;
}

// Called before the body is read: later, the trailer's fields would be mixed with the header's.
void RequestParser::ReadHeader() {
  const auto& message = message_->parser.get();
  is_http_1_0_ = message.version() == 10;
  keep_alive_ = message_->parser.keep_alive();
  expects_continue_ = !is_http_1_0_ && message.count(field::expect) > 0;
  request_.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  const size_t query = target.find('?');
  request_.path = std::string(target.substr(0, query));
  if (query != std::string_view::npos) request_.query = std::string(target.substr(query + 1));
  request_.version = is_http_1_0_ ? "1.0" : "1.1";
  request_.host = Value(message, field::host);
  request_.authorization = Value(message, field::authorization);
  const std::string key = Value(message, "X-Api-Key");
  if (request_.authorization.empty() && !key.empty()) request_.authorization = "Bearer " + key;
  request_.anthropic_beta = Value(message, "Anthropic-Beta");
  request_.content_type = Value(message, field::content_type);
  request_.origin = Value(message, field::origin);
  request_.request_id = Value(message, "X-Request-Id");
  request_.last_event_id = Value(message, "Last-Event-ID");
  request_.traceparent = Value(message, kTraceparent);
}

std::optional<uint64_t> RequestParser::body_left() const {
  if (state_ == State::kComplete) return 0;
  const auto left = message_->parser.content_length_remaining();
  return left ? std::optional<uint64_t>(*left) : std::nullopt;
}

HttpRequest RequestParser::Take() {
  SC_CHECK(state_ == State::kComplete);
  HttpRequest request = std::move(request_);
  request.arrived = std::chrono::steady_clock::now();
  request.body = std::move(message_->parser.get().body());
  request.body_lease = std::move(lease_);
  Reset();
  return request;
}

}  // namespace stagecoach::router::http
