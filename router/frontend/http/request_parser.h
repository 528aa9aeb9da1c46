// Bytes from a client to requests. Knows limits, no sockets and no time.
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

// Strict where a proxy in front might read the same bytes differently: Content-Length beside
// Transfer-Encoding, codings other than chunked and a missing Host are refused. One thread at a
// time.
class RequestParser {
 public:
  enum class State { kHeader, kBody, kComplete, kFailed };

  // Where and why a request was refused: the connection cannot be used further.
  struct Failure {
    int status = 400;
    std::string message;
  };

  // `budget` outlives the parser and the requests.
  RequestParser(const HttpLimits& limits, MemoryBudget* budget);
  ~RequestParser();

  // Takes what it can use from the start of `data` and says how much that was; the rest, and more,
  // is to be given again. Returns to the caller after the header, and after the body.
  size_t Feed(std::string_view data);

  State state() const { return state_; }
  const Failure& failure() const { return failure_; }  // when kFailed

  // From kBody on, as the header says; what comes behind the body changes none of it.
  const HttpRequest& head() const { return request_; }         // without its body
  bool expects_continue() const { return expects_continue_; }  // before it sends its body
  bool keep_alive() const { return keep_alive_; }  // the client may send another request after this
  bool is_http_1_0() const { return is_http_1_0_; }
  // Bytes of the body that are still to come; absent when only the body itself will tell.
  std::optional<uint64_t> body_left() const;

  // When kComplete. The parser is then ready for the next request.
  HttpRequest Take();
  // From kBody on: nobody wants the request. What is left of its body is the caller's to skip.
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
