// The response side of one request.
#pragma once

#include <string>

#include "absl/functional/any_invocable.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// Any thread may call the methods; they return at once. A request ends either with Respond, or with
// StartStream, any number of Write calls, and one of EndStream and FailStream. Call nothing after
// the end. After the client is gone, all methods do nothing.
class Exchange {
 public:
  using Done = absl::AnyInvocable<void(bool ok) &&>;

  virtual ~Exchange() = default;

  // Header fields for every response to this request. Call it before any other method.
  virtual void AddFields(HeaderFields fields) = 0;

  virtual void Respond(HttpResponse response) = 0;

  // Starts a stream of server-sent events; `head.body` is ignored. The header is sent with the
  // first data, or with a comment if data takes long. So a stream that fails early still gets an
  // HTTP status, and one that waits long shows that it is alive. A silent stream keeps sending
  // comments. `has_ids`: its events have ids; then some clients treat the empty line after a
  // comment as an event.
  virtual void StartStream(HttpResponse head, bool has_ids) = 0;
  // True: more may follow at once. False (backpressure): the client is slow; write no more until
  // `done` runs: with true when the network has taken `data`, or with false if the client is gone.
  virtual bool Write(std::string data, Done done) = 0;
  virtual void EndStream(std::string data) = 0;
  // Sends `response` if nothing was sent yet, even without StartStream; otherwise sends `data`.
  virtual void FailStream(HttpResponse response, std::string data) = 0;

  // Runs `action` once if the client disconnects before the end; at once if it is gone already;
  // never after the end. Call at most once.
  virtual void OnGone(absl::AnyInvocable<void() &&> action) = 0;
  // The client is known to be gone, so nobody can receive an answer.
  virtual bool is_gone() const = 0;
};

}  // namespace stagecoach::router::http
