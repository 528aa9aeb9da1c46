// What writes a stream to a client: a running request, or a kept stream.
#pragma once

namespace stagecoach::router {

// Writes from Start until it ends the stream. Thread-safe.
class StreamSource {
 public:
  virtual ~StreamSource() = default;
  virtual void Start() = 0;
  virtual void WriteDone(bool ok) = 0;
  // The client is gone, has cancelled, or its deadline has passed.
  virtual void Cancel() = 0;
};

}  // namespace stagecoach::router
