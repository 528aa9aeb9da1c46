// The sources of a gRPC stream: the messages of a request, or a kept stream that runs
// independently.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "router/frontend/arrival.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

class Frontend;

// The connection to one client. Any thread may call the methods, one call at a time.
class ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  // `message` must stay unchanged until StreamSource::WriteDone.
  virtual void Write(const v1::GenerateResponse& message) = 0;
  virtual void WriteLast(const v1::GenerateResponse& message) = 0;  // then ends with OK
  virtual void End(const absl::Status& status) = 0;
};

// Writes to a ResponseStream from Start until it ends the stream. Thread-safe.
class StreamSource {
 public:
  virtual ~StreamSource() = default;
  virtual void Start() = 0;
  virtual void WriteDone(bool ok) = 0;
  // The client has cancelled, or its deadline has passed.
  virtual void Cancel() = 0;
};

// The stream of `request`, which must live as long as `out`. The stream of a resumable request is
// kept, and runs on without the client.
std::shared_ptr<StreamSource> MakeSource(Frontend* frontend, const v1::GenerateRequest& request,
                                         const Arrival& arrival, ResponseStream* out);
std::shared_ptr<StreamSource> MakeSource(Frontend* frontend, const v1::ChatRequest& request,
                                         const Arrival& arrival, ResponseStream* out);
// The rest of a kept stream.
std::shared_ptr<StreamSource> MakeSource(Frontend* frontend, const v1::ResumeRequest& request,
                                         const Arrival& arrival, ResponseStream* out);

}  // namespace stagecoach::router
