#include "router/frontend/inference_service.h"

#include <memory>
#include <utility>

#include "common/rpc/status.h"
#include "router/frontend/call_metadata.h"
#include "router/frontend/frontend.h"
#include "router/frontend/retry_after.h"
#include "router/frontend/stream_call.h"

namespace stagecoach::router {
namespace {

// Lives from the call's start to OnDone, which comes after WriteLast or Fail and after the last
// reaction; the generation lets go of it before that.
class StreamReactor final : public grpc::ServerWriteReactor<v1::GenerateResponse>,
                            public ResponseWriter {
 public:
  explicit StreamReactor(grpc::CallbackServerContext* context) : context_(context) {}

  template <typename Request>
  void Begin(Frontend* frontend, const Request* request) {
    generation_ = frontend->NewGeneration(request->request_id(), this, nullptr,
                                          {.traceparent = Traceparent(*context_)});
    frontend->Begin(generation_, request);
  }

  bool Write(const v1::GenerateResponse& message) override {
    StartWrite(&message);
    return false;
  }
  void WriteLast(const v1::GenerateResponse& message) override {
    StartWriteAndFinish(&message, grpc::WriteOptions(), grpc::Status::OK);
  }
  void Fail(const absl::Status& status) override {
    AddRetryAfter(context_, status);
    Finish(ToGrpc(status));
  }

  void OnWriteDone(bool ok) override { generation_->WriteDone(ok); }
  void OnCancel() override {
    generation_->Cancel(absl::CancelledError("cancelled by the client, or past its deadline"));
  }
  void OnDone() override { delete this; }

 private:
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<Generation> generation_;
};

// Runs `work` on a prompt thread and ends the call with its status.
grpc::ServerUnaryReactor* Unary(Frontend* frontend, grpc::CallbackServerContext* context,
                                absl::AnyInvocable<absl::Status()> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto finish = [context, reactor](const absl::Status& status) {
    AddRetryAfter(context, status);
    reactor->Finish(ToGrpc(status));
  };
  const absl::Status posted =
      frontend->Post([finish, work = std::move(work)]() mutable { finish(work()); });
  if (!posted.ok()) finish(posted);
  return reactor;
}

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  if (request->resumable()) return BeginKept(frontend_, context, *request);
  auto* reactor = new StreamReactor(context);
  reactor->Begin(frontend_, request);
  return reactor;
}

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceService::Chat(
    grpc::CallbackServerContext* context, const v1::ChatRequest* request) {
  if (request->resumable()) return BeginKept(frontend_, context, *request);
  auto* reactor = new StreamReactor(context);
  reactor->Begin(frontend_, request);
  return reactor;
}

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceService::Resume(
    grpc::CallbackServerContext* context, const v1::ResumeRequest* request) {
  return ResumeKept(frontend_, context, *request);
}

grpc::ServerUnaryReactor* InferenceService::Cancel(grpc::CallbackServerContext* context,
                                                   const v1::CancelRequest* request,
                                                   v1::CancelResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(frontend_->streams().Cancel(kGrpcOwner, request->request_id())));
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const v1::TokenizeRequest* request,
                                                     v1::TokenizeResponse* response) {
  return Unary(frontend_, context,
               [this, request, response] { return frontend_->Tokenize(*request, response); });
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const v1::DetokenizeRequest* request,
                                                       v1::DetokenizeResponse* response) {
  return Unary(frontend_, context,
               [this, request, response] { return frontend_->Detokenize(*request, response); });
}

grpc::ServerUnaryReactor* InferenceService::ListModels(grpc::CallbackServerContext* context,
                                                       const v1::ListModelsRequest*,
                                                       v1::ListModelsResponse* response) {
  return Unary(frontend_, context,
               [this, response] { return frontend_->DescribeModel(response->add_models()); });
}

grpc::ServerUnaryReactor* InferenceService::GetModel(grpc::CallbackServerContext* context,
                                                     const v1::GetModelRequest* request,
                                                     v1::Model* response) {
  return Unary(frontend_, context,
               [this, request, response] { return frontend_->GetModel(*request, response); });
}

}  // namespace stagecoach::router
