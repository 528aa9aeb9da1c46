// One request's way back to its client.
#pragma once

#include <string>

#include "absl/functional/any_invocable.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// Methods may be called from any thread and return at once. A request ends with Respond, or with
// StartStream, any number of Write and one of EndStream and FailStream; nothing is called after the
// end. Once the client is gone all of them do nothing.
class Exchange {
 public:
  using Done = absl::AnyInvocable<void(bool ok) &&>;

  virtual ~Exchange() = default;

  // Fields for whatever response this request gets. Before any other call.
  virtual void AddFields(HeaderFields fields) = 0;

  virtual void Respond(HttpResponse response) = 0;

  // A stream of server-sent events; `head.body` is not used. The header goes out with the first
  // data or, when that takes long, with a comment: so a stream that fails early is still a status,
  // and one that waits long looks alive. While it is silent comments go on. `has_ids`: its events
  // have ids; then some clients take the empty line behind a comment for an event.
  virtual void StartStream(HttpResponse head, bool has_ids) = 0;
  // True: more may follow at once. False: the client is slow, and `done` runs when the network has
  // taken `data` (true) or the client is gone (false); until then nothing more should be written.
  virtual bool Write(std::string data, Done done) = 0;
  virtual void EndStream(std::string data) = 0;
  // With `response` if nothing has gone out yet, even without a StartStream, else with `data`.
  virtual void FailStream(HttpResponse response, std::string data) = 0;

  // Runs `action` once if the client goes before the end, at once if it is gone already; never
  // after the end. At most one.
  virtual void OnGone(absl::AnyInvocable<void() &&> action) = 0;
  // The client is known to be gone: nobody will have an answer.
  virtual bool is_gone() const = 0;
};

}  // namespace stagecoach::router::http
