// Parses a client's bytes into requests. Applies size limits; knows neither sockets nor time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "router/frontend/http/http_message.h"
#include "router/frontend/http/http_options.h"

namespace stagecoach::router::http {

// Strict where a proxy in front might parse the same bytes differently (request smuggling): rejects
// Content-Length beside Transfer-Encoding, codings other than chunked, and a missing Host. One
// thread at a time.
class RequestParser {
 public:
  enum class State { kHeader, kBody, kComplete, kFailed };

  // The HTTP status and reason of a rejected request. The connection cannot be used any more.
  struct Failure {
    int status = 400;
    std::string message;
  };

  // `budget` outlives the parser and the requests.
  RequestParser(const HttpLimits& limits, MemoryBudget* budget);
  ~RequestParser();

  // Consumes bytes from the start of `data` and returns their number. Pass the rest again, together
  // with later data. Returns after the header, and after the body.
  size_t Feed(std::string_view data);

  State state() const { return state_; }
  const Failure& failure() const { return failure_; }  // when kFailed

  // Valid from kBody on. They follow from the header; data after the body does not change them.
  const HttpRequest& head() const { return request_; }  // without the body
  // The client waits for "100 Continue" before it sends the body.
  bool expects_continue() const { return expects_continue_; }
  bool keep_alive() const { return keep_alive_; }  // another request may follow
  bool is_http_1_0() const { return is_http_1_0_; }
  // Remaining bytes of the body. Absent if only the body itself tells (chunked).
  std::optional<uint64_t> body_left() const;

  // REQUIRES: kComplete. The parser is then ready for the next request.
  HttpRequest Take();
  // Drops the request; valid from kBody on. The caller must skip the rest of its body.
  void Drop() { Reset(); }

 private:
  struct Message;  // hides the HTTP library

  void Reset();
  size_t Fail(int status, std::string message);
  bool CheckHeader();
  void ReadHeader();

  const HttpLimits limits_;
  MemoryBudget* const budget_;
  std::unique_ptr<Message> message_;
  MemoryBudget::Lease lease_;
  State state_ = State::kHeader;
  HttpRequest request_;
  bool expects_continue_ = false;
  bool keep_alive_ = false;
  bool is_http_1_0_ = false;
  Failure failure_;
};

}  // namespace stagecoach::router::http
