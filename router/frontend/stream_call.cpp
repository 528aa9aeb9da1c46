#include "router/frontend/stream_call.h"

#include <string>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "router/frontend/frontend.h"
#include "router/frontend/stream_pump.h"
#include "router/text/request_builder.h"
#include "router/text/sampling_params.h"

namespace stagecoach::router {
namespace {

absl::StatusOr<GenerationInput> Build(const ServedModel& model, const v1::GenerateRequest& request,
                                      const Arrival&) {
  return BuildGeneration(model, request);
}
absl::StatusOr<GenerationInput> Build(const ServedModel& model, const v1::ChatRequest& request,
                                      const Arrival& arrival) {
  return BuildGeneration(model, request, UnixSeconds(arrival));
}

// Builds and submits `request`, which must live until the stream's end, on another thread.
template <typename Request>
void Submit(Frontend* frontend, const std::shared_ptr<Generation>& generation,
            const Request& request) {
  frontend->PostStartAll(
      {generation}, NeedsGrammar(request),
      [frontend, generation, &request](size_t) -> absl::StatusOr<GenerationInput> {
        SC_RETURN_IF_ERROR(generation->caller().TakeChoices(request.sampling().n()));
        return Build(frontend->model(), request, generation->arrival());
      });
}

v1::GenerateRequest* RequestIn(v1::StreamRecord& record, const v1::GenerateRequest&) {
  return record.mutable_generate();
}
v1::ChatRequest* RequestIn(v1::StreamRecord& record, const v1::ChatRequest&) {
  return record.mutable_chat();
}

// Sends the messages of a request as they come.
template <typename Request>
class LiveSource final : public StreamSource {
 public:
  LiveSource(Frontend* frontend, const Request& request, const Arrival& arrival,
             ResponseWriter* out)
      : frontend_(frontend),
        request_(request),
        generation_(frontend->NewGeneration(request.request_id(), out, nullptr, arrival)) {}

  void Start() override { Submit(frontend_, generation_, request_); }
  void WriteDone(bool ok) override { generation_->WriteDone(ok); }
  void Cancel() override {
    generation_->Cancel(absl::CancelledError("cancelled by the client, or past its deadline"));
  }

 private:
  Frontend* const frontend_;
  const Request& request_;
  const std::shared_ptr<Generation> generation_;
};

// Writes the messages of a request to the store. Lives until its stream's end.
template <typename Request>
class KeptRequest final : public ResponseWriter {
 public:
  // Starts a copy of `request`, and returns a reader from the start of its stream.
  static absl::StatusOr<std::unique_ptr<StreamReader>> Begin(Frontend* frontend,
                                                             const Request& request,
                                                             const Arrival& arrival) {
    auto kept = std::make_shared<KeptRequest>(request);
    const std::string id = Frontend::RequestId(request.request_id());
    const auto generation = frontend->NewGeneration(id, kept.get(), nullptr, arrival);
    SC_ASSIGN_OR_RETURN(NewStream stream,
                        frontend->KeepStream(StreamProtocol::kGrpc, id, {generation}, [&kept] {
                          v1::StreamRecord record;
                          *RequestIn(record, kept->request_) = kept->request_;
                          return record;
                        }));
    kept->writer_ = std::move(stream.writer);
    kept->self_ = kept;
    Submit(frontend, generation, kept->request_);
    return std::move(stream.reader);
  }

  static absl::Status Continue(Frontend* frontend, const Request& request, JournalStream stream,
                               const Arrival& arrival, WorkQueue::Task done) {
    auto kept = std::make_shared<KeptRequest>(request);
    const std::string& id = stream.record.request_id();
    const auto generation = frontend->NewGeneration(id, kept.get(), nullptr, arrival);
    SC_ASSIGN_OR_RETURN(
        kept->writer_, frontend->KeepAgain(StreamProtocol::kGrpc, id, {generation}, stream.number));
    kept->self_ = kept;
    frontend->PostContinue(
        {generation}, NeedsGrammar(request),
        [frontend, generation, kept](size_t) {
          return Build(frontend->model(), kept->request_, generation->arrival());
        },
        std::move(stream.events), std::move(done));
    return absl::OkStatus();
  }

  explicit KeptRequest(Request request) : request_(std::move(request)) {
    FixSeed(*request_.mutable_sampling());
  }

  void OnQueued() override { writer_->Start(); }
  bool Write(const v1::GenerateResponse& message) override {
    Append(message);
    return true;
  }
  void WriteLast(const v1::GenerateResponse& message) override {
    Append(message);
    End(absl::OkStatus());
  }
  void End(const absl::Status& status) override {
    const std::shared_ptr<KeptRequest> self = std::move(self_);
    writer_->End(status);
  }

 private:
  void Append(const v1::GenerateResponse& message) {
    n_tokens_ += static_cast<uint64_t>(message.token_ids_size());
    // Concatenated protobuf messages parse as one message with the fields of both.
    v1::GenerateResponse position;
    position.set_position(n_tokens_);
    std::string data = message.SerializeAsString();
    position.AppendToString(&data);
    writer_->Append(n_tokens_, std::move(data));
  }

  Request request_;  // constant after the start
  std::unique_ptr<StreamWriter> writer_;
  uint64_t n_tokens_ = 0;
  std::shared_ptr<KeptRequest> self_;  // keeps this alive until the end
};

// Sends a kept stream, each entry of which is a message.
class MessagePump final : public StreamPump {
 public:
  MessagePump(Frontend* frontend, std::unique_ptr<StreamReader> reader, ResponseWriter* out)
      : StreamPump(std::move(reader), /*max_bytes=*/0, frontend->NextLane()), out_(out) {}

 private:
  bool Write(std::string data) override {
    SC_CHECK(message_.ParseFromString(data));
    return out_->Write(message_);
  }
  void End(const absl::Status& status) override { out_->End(status); }

  ResponseWriter* const out_;
  v1::GenerateResponse message_;
};

template <typename Request>
MaybeSource MakeAny(Frontend* frontend, const Request& request, const Arrival& arrival,
                    ResponseWriter* out) {
  if (!request.resumable()) {
    return std::make_shared<LiveSource<Request>>(frontend, request, arrival, out);
  }
  SC_ASSIGN_OR_RETURN(auto reader, KeptRequest<Request>::Begin(frontend, request, arrival));
  return std::make_shared<MessagePump>(frontend, std::move(reader), out);
}

}  // namespace

MaybeSource MakeSource(Frontend* frontend, const v1::GenerateRequest& request,
                       const Arrival& arrival, ResponseWriter* out) {
  return MakeAny(frontend, request, arrival, out);
}

MaybeSource MakeSource(Frontend* frontend, const v1::ChatRequest& request, const Arrival& arrival,
                       ResponseWriter* out) {
  return MakeAny(frontend, request, arrival, out);
}

MaybeSource MakeSource(Frontend* frontend, const v1::ResumeRequest& request, const Arrival& arrival,
                       ResponseWriter* out) {
  SC_ASSIGN_OR_RETURN(auto reader,
                      frontend->streams().Read(StreamOwner(StreamProtocol::kGrpc, arrival.caller),
                                               request.request_id(), request.from()));
  return std::make_shared<MessagePump>(frontend, std::move(reader), out);
}

absl::Status ContinueStream(Frontend* frontend, JournalStream stream, const Arrival& arrival,
                            WorkQueue::Task done) {
  if (stream.record.has_chat()) {
    const v1::ChatRequest request = std::move(*stream.record.mutable_chat());
    return KeptRequest<v1::ChatRequest>::Continue(frontend, request, std::move(stream), arrival,
                                                  std::move(done));
  }
  const v1::GenerateRequest request = std::move(*stream.record.mutable_generate());
  return KeptRequest<v1::GenerateRequest>::Continue(frontend, request, std::move(stream), arrival,
                                                    std::move(done));
}

}  // namespace stagecoach::router
