#include "router/frontend/http/request_parser.h"

#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router::http {
namespace {

using State = RequestParser::State;

HttpLimits SmallLimits() {
  HttpLimits limits;
  limits.max_header_bytes = 512;
  limits.max_body_bytes = 64;
  return limits;
}

// Feeds `bytes` in pieces of `piece` bytes until the parser has a request or fails; leaves the rest
// in `bytes`.
State FeedAll(RequestParser& parser, std::string& bytes, size_t piece) {
  std::string held;
  size_t given = 0;
  while (parser.state() == State::kHeader || parser.state() == State::kBody) {
    const size_t consumed = parser.Feed(held);
    held.erase(0, consumed);
    if (consumed > 0) continue;
    if (parser.state() != State::kHeader && parser.state() != State::kBody) break;
    if (given == bytes.size()) break;
    held += bytes.substr(given, piece);
    given = std::min(bytes.size(), given + piece);
  }
  bytes = held + bytes.substr(given);
  return parser.state();
}

int FailureOf(std::string bytes, size_t budget_bytes = 1 << 20) {
  const HttpLimits limits = SmallLimits();
  MemoryBudget budget(budget_bytes);
  int status = 0;
  for (const size_t piece : {size_t(1), size_t(7), bytes.size()}) {
    RequestParser parser(limits, &budget);
    std::string rest = bytes;
    INFO(bytes.substr(0, 100));
    REQUIRE(FeedAll(parser, rest, piece) == State::kFailed);
    CHECK_FALSE(parser.failure().message.empty());
    CHECK((status == 0 || status == parser.failure().status));
    status = parser.failure().status;
  }
  return status;
}

TEST_CASE("requests are complete however their bytes are split, also when pipelined") {
  const std::string chunked =
      "POST /v1/x?y=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer "
      "k\r\n"
      "Expect: 100-continue\r\nX-Request-Id: id\r\n\r\n3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nT: "
      "x\r\n\r\n";
  const std::string sized =
      "POST / HTTP/1.0\r\nContent-Length: 5\r\nContent-Type: application/json\r\n\r\nhello";
  const std::string bodiless = "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  MemoryBudget budget(1 << 20);
  for (const size_t piece : {1, 2, 3, 50, 1000}) {
    RequestParser parser(SmallLimits(), &budget);
    std::string bytes = chunked + sized + bodiless + "GET";
    REQUIRE(FeedAll(parser, bytes, piece) == State::kComplete);
    CHECK(parser.expects_continue());
    CHECK(parser.keep_alive());
    const HttpRequest first = parser.Take();
    CHECK(first.method == "POST");
    CHECK(first.path == "/v1/x");
    CHECK(first.version == "1.1");
    CHECK(first.authorization == "Bearer k");
    CHECK(first.request_id == "id");
    CHECK(first.body == "abcdefg");

    REQUIRE(FeedAll(parser, bytes, piece) == State::kComplete);
    CHECK(parser.is_http_1_0());
    CHECK_FALSE(parser.keep_alive());
    const HttpRequest second = parser.Take();
    CHECK(second.body == "hello");
    CHECK(second.content_type == "application/json");

    REQUIRE(FeedAll(parser, bytes, piece) == State::kComplete);
    CHECK_FALSE(parser.keep_alive());
    CHECK_FALSE(parser.expects_continue());
    CHECK(parser.Take().path == "/health");
    CHECK(FeedAll(parser, bytes, piece) == State::kHeader);
    CHECK(bytes == "GET");
  }
}

TEST_CASE("a key may come in either of two fields") {
  const auto authorization = [](const std::string& fields) {
    MemoryBudget budget(1 << 20);
    RequestParser parser(SmallLimits(), &budget);
    std::string bytes = "GET / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n";
    REQUIRE(FeedAll(parser, bytes, 1000) == State::kComplete);
    return parser.Take().authorization;
  };
  CHECK(authorization("x-api-key: k\r\n") == "Bearer k");
  CHECK(authorization("X-API-Key: k\r\nAuthorization: Bearer other\r\n") == "Bearer other");
  CHECK(authorization("x-api-key: \r\n").empty());
}

TEST_CASE("too large a request is refused before it is buffered") {
  CHECK(FailureOf("GET /" + std::string(600, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n") == 431);
  CHECK(FailureOf("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(600, 'a')) == 431);
  CHECK(FailureOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 65\r\n\r\n") == 413);
  CHECK(FailureOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n41\r\n" +
                  std::string(65, 'a')) == 413);
  const std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  CHECK(FailureOf(chunked + "1;" + std::string(600, 'a')) == 431);
  CHECK(FailureOf(chunked + "0\r\nT: " + std::string(600, 'a')) == 431);
  CHECK(FailureOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 21\r\n\r\n" + std::string(21, 'x'),
                  /*budget_bytes=*/20) == 503);
}

TEST_CASE("ambiguous requests are refused") {
  const std::string start = "POST / HTTP/1.1\r\nHost: a\r\n";
  CHECK(FailureOf(start + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") ==
        400);
  CHECK(FailureOf(start + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd") == 400);
  CHECK(FailureOf(start + "Content-Length: -1\r\n\r\n") == 400);
  CHECK(FailureOf(start + "Transfer-Encoding: gzip\r\n\r\n") == 501);
  CHECK(FailureOf(start + "Transfer-Encoding: chunked, identity\r\n\r\n") == 501);
  CHECK(FailureOf(start + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n") == 501);
  CHECK(FailureOf(start + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n") == 501);
  CHECK(FailureOf("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") == 400);
  CHECK(FailureOf(start + "Transfer-Encoding: chunked\r\n\r\nzz\r\n") == 400);
  CHECK(FailureOf(start + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx") == 415);
  CHECK(FailureOf(start + "Expect: magic\r\n\r\n") == 417);
  CHECK(FailureOf("POST / HTTP/1.1\r\n\r\n") == 400);
  CHECK(FailureOf("POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n") == 400);
  CHECK(FailureOf("GET / HTTP/3.0\r\nHost: a\r\n\r\n") == 505);
  CHECK(FailureOf("\x16\x03\x01\x02\x01garbage\r\n\r\n") == 400);
}

TEST_CASE("a trailer does not change the header") {
  MemoryBudget budget(1 << 20);
  for (const size_t piece : {1, 1000}) {
    RequestParser parser(SmallLimits(), &budget);
    std::string bytes =
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
        "Authorization: Bearer k\r\nOrigin: http://a\r\nX-Request-Id: forged\r\nConnection: "
        "close\r\nExpect: 100-continue\r\n\r\n";
    REQUIRE(FeedAll(parser, bytes, piece) == State::kComplete);
    CHECK(parser.keep_alive());
    CHECK_FALSE(parser.expects_continue());
    const HttpRequest request = parser.Take();
    CHECK(request.body == "x");
    CHECK(request.authorization.empty());
    CHECK(request.origin.empty());
    CHECK(request.request_id.empty());
  }
}

TEST_CASE("the header is enough to refuse a request, and the length of the rest is known") {
  MemoryBudget budget(1 << 20);
  RequestParser parser(SmallLimits(), &budget);
  const std::string sized =
      "POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nAuthorization: k\r\n\r\n";
  CHECK(parser.Feed(sized + "he") == sized.size());
  REQUIRE(parser.state() == State::kBody);
  CHECK(parser.head().path == "/v1");
  CHECK(parser.head().authorization == "k");
  CHECK(parser.body_left() == 5);
  parser.Drop();
  CHECK(parser.state() == State::kHeader);
  parser.Feed("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  REQUIRE(parser.state() == State::kBody);
  CHECK_FALSE(parser.body_left());
}

TEST_CASE("a body holds its part of the memory budget as long as the request lives") {
  MemoryBudget budget(40);
  const std::string bytes =
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n" + std::string(30, 'x');
  RequestParser parser(SmallLimits(), &budget);
  std::string rest = bytes;
  REQUIRE(FeedAll(parser, rest, 1000) == State::kComplete);
  {
    const HttpRequest held = parser.Take();
    rest = bytes;
    CHECK(FeedAll(parser, rest, 1000) == State::kFailed);
    CHECK(parser.failure().status == 503);
  }
  RequestParser next(SmallLimits(), &budget);
  rest = bytes;
  CHECK(FeedAll(next, rest, 1000) == State::kComplete);
}

}  // namespace
}  // namespace stagecoach::router::http
