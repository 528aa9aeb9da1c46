// Reads a stream to its end over as many connections as it takes: when one breaks, the client asks
// the server for the rest. The rules are the same for gRPC and HTTP.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "cli/client.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

// How a call ended.
struct CallEnd {
  enum class Cut : uint8_t {
    kNone,       // the server ended the call
    kUnreached,  // there was no connection to a server
    kBroken      // the connection broke during the call
  };
  absl::Status status;
  Cut cut = Cut::kNone;
};

// Receives a part of a stream. `position` is the number of the stream's tokens up to the end of the
// part; nullopt: the server does not say, or says it with the next part.
using PartFn = std::function<void(std::span<const v1::GenerateResponse> pieces,
                                  std::optional<uint64_t> position)>;

// The calls of one stream in one protocol. ReadStream makes one call at a time, on its own thread.
class StreamCalls {
 public:
  virtual ~StreamCalls() = default;

  // Sends the request. CANCELLED if the canceller of the stream cancelled the call.
  virtual CallEnd Begin(bool resumable, const PartFn& on_part) = 0;
  // Reads the stream after its first `from` tokens. NOT_FOUND: the server does not have it.
  virtual CallEnd Resume(uint64_t from, const PartFn& on_part) = 0;
  // Tells the server to end the stream. Takes at most some seconds.
  virtual void Drop() = 0;
};

struct ResumePolicy {
  // Time after a loss in which the client tries to go on; 0: the stream is not resumable.
  std::chrono::milliseconds limit{0};
  // The server has answered before, so that even a refused connection is worth another try.
  bool knows_server = false;
};

// Passes every piece of the stream to `on_piece` once. Says on standard error that a connection was
// lost. An error after a lost connection says so too; UNAVAILABLE after policy.limit, but not
// before one more try. A stream that is cancelled also ends on the server.
absl::Status ReadStream(StreamCalls& calls, const ResumePolicy& policy, Canceller& canceller,
                        const PieceFn& on_piece);

// A random request id, under which a client finds its stream again.
std::string NewStreamName();

}  // namespace stagecoach::cli
