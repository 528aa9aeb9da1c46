#include "router/frontend/stream_call.h"

#include <memory>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/rpc/status.h"
#include "router/frontend/call_metadata.h"
#include "router/frontend/frontend.h"
#include "router/frontend/retry_after.h"

namespace stagecoach::router {
namespace {

// Puts a request's messages into the store. Lives until its stream's end.
template <typename Request>
class KeptRequest final : public ResponseWriter {
 public:
  // Gives a reader of all of it.
  static absl::StatusOr<std::unique_ptr<StreamReader>> Begin(Frontend* frontend,
                                                             const Request& request,
                                                             const std::string& traceparent) {
    auto kept = std::make_shared<KeptRequest>(request);
    const std::string id = Frontend::RequestId(request.request_id());
    const auto generation =
        frontend->NewGeneration(id, kept.get(), nullptr, {.traceparent = traceparent});
    auto stream = frontend->streams().Create(
        kGrpcOwner, {}, id,
        [generation](const absl::Status& status) { generation->Cancel(status); });
    if (!stream.ok()) return stream.status();
    kept->writer_ = std::move(stream->writer);
    kept->self_ = kept;
    frontend->Begin(generation, &kept->request_);
    return std::move(stream->reader);
  }

  explicit KeptRequest(const Request& request) : request_(request) {}

  void OnQueued() override { writer_->Start(); }
  bool Write(const v1::GenerateResponse& message) override {
    Append(message);
    return true;
  }
  void WriteLast(const v1::GenerateResponse& message) override {
    Append(message);
    End(absl::OkStatus());
  }
  void Fail(const absl::Status& status) override { End(status); }

 private:
  void Append(const v1::GenerateResponse& message) {
    n_tokens_ += static_cast<uint64_t>(message.token_ids_size());
    // Messages one behind the other are one message with the fields of both.
    v1::GenerateResponse position;
    position.set_position(n_tokens_);
    std::string data = message.SerializeAsString();
    position.AppendToString(&data);
    writer_->Append(n_tokens_, std::move(data));
  }
  void End(const absl::Status& status) {
    const std::shared_ptr<KeptRequest> self = std::move(self_);
    writer_->End(status);
  }

  const Request request_;
  std::unique_ptr<StreamWriter> writer_;
  uint64_t n_tokens_ = 0;
  std::shared_ptr<KeptRequest> self_;  // until the end
};

// Carries a stream from the store to one client. State belongs to a text thread; lives until OnDone
// and the last task that knows it.
class ReadingCall final : public GenerateReactor, public std::enable_shared_from_this<ReadingCall> {
 public:
  static GenerateReactor* Begin(Frontend* frontend, grpc::CallbackServerContext* context,
                                absl::StatusOr<std::unique_ptr<StreamReader>> reader) {
    auto call = std::make_shared<ReadingCall>(frontend->NextLane(), context);
    call->self_ = call;
    if (!reader.ok()) {
      call->End(reader.status());
      return call.get();
    }
    call->reader_ = *std::move(reader);
    call->reader_->OnNews([weak = std::weak_ptr(call)] {
      if (const auto alive = weak.lock()) alive->Post([](ReadingCall& self) { self.Pump(); });
    });
    call->Post([](ReadingCall& self) { self.Pump(); });
    return call.get();
  }

  ReadingCall(WorkQueue* lane, grpc::CallbackServerContext* context)
      : lane_(lane), context_(context) {}

  void OnWriteDone(bool ok) override {
    Post([ok](ReadingCall& self) {
      self.is_writing_ = false;
      self.is_gone_ = self.is_gone_ || !ok;
      self.Pump();
    });
  }
  void OnCancel() override {
    Post([](ReadingCall& self) {
      self.is_gone_ = true;
      self.Pump();
    });
  }
  void OnDone() override { const std::shared_ptr<ReadingCall> self = std::move(self_); }

 private:
  template <typename Action>
  void Post(Action action) {
    lane_->Post([self = shared_from_this(), action] { action(*self); });
  }

  void Pump() {
    if (reader_ == nullptr || is_writing_) return;
    if (is_gone_) return End(absl::CancelledError("the client is gone"));
    const StreamReader::Piece piece = reader_->Next(/*max_bytes=*/0);
    if (!piece.data.empty()) {
      SC_CHECK(message_.ParseFromString(piece.data));
      is_writing_ = true;
      // The last message's end is seen after it.
      return StartWrite(&message_);
    }
    if (piece.ended) End(piece.status);
  }

  void End(const absl::Status& status) {
    reader_ = nullptr;
    AddRetryAfter(context_, status);
    Finish(ToGrpc(status));
  }

  WorkQueue* const lane_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<ReadingCall> self_;  // until OnDone
  std::unique_ptr<StreamReader> reader_;
  v1::GenerateResponse message_;
  bool is_writing_ = false;
  bool is_gone_ = false;
};

template <typename Request>
GenerateReactor* BeginAny(Frontend* frontend, grpc::CallbackServerContext* context,
                          const Request& request) {
  return ReadingCall::Begin(frontend, context,
                            KeptRequest<Request>::Begin(frontend, request, Traceparent(*context)));
}

}  // namespace

GenerateReactor* BeginKept(Frontend* frontend, grpc::CallbackServerContext* context,
                           const v1::GenerateRequest& request) {
  return BeginAny(frontend, context, request);
}

GenerateReactor* BeginKept(Frontend* frontend, grpc::CallbackServerContext* context,
                           const v1::ChatRequest& request) {
  return BeginAny(frontend, context, request);
}

GenerateReactor* ResumeKept(Frontend* frontend, grpc::CallbackServerContext* context,
                            const v1::ResumeRequest& request) {
  return ReadingCall::Begin(
      frontend, context,
      frontend->streams().Read(kGrpcOwner, request.request_id(), request.from()));
}

}  // namespace stagecoach::router
