// What a gRPC stream carries: a request's own messages, or what is kept of one that runs by itself.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "router/frontend/arrival.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

class Frontend;

// The way to one client. Write and Finish may be called from any thread, one after the other.
class ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  // `message` stays as it is until StreamSource::WriteDone.
  virtual void Write(const v1::GenerateResponse& message) = 0;
  virtual void WriteLast(const v1::GenerateResponse& message) = 0;  // and an OK end
  virtual void End(const absl::Status& status) = 0;
};

// Writes to a ResponseStream from Start on until it ends it. Thread-safe.
class StreamSource {
 public:
  virtual ~StreamSource() = default;
  virtual void Start() = 0;
  virtual void WriteDone(bool ok) = 0;
  // The client has cancelled or is past its deadline.
  virtual void Cancel() = 0;
};

// The stream of `request`, which lives as long as `out` does. A resumable one's is kept, and runs
// on without the client.
std::shared_ptr<StreamSource> MakeSource(Frontend* frontend, const v1::GenerateRequest& request,
                                         const Arrival& arrival, ResponseStream* out);
std::shared_ptr<StreamSource> MakeSource(Frontend* frontend, const v1::ChatRequest& request,
                                         const Arrival& arrival, ResponseStream* out);
// The rest of a kept one.
std::shared_ptr<StreamSource> MakeSource(Frontend* frontend, const v1::ResumeRequest& request,
                                         const Arrival& arrival, ResponseStream* out);

// In whose name gRPC's streams of a tenant are kept.
std::string GrpcOwner(const Caller& caller);

}  // namespace stagecoach::router
