#include "router/frontend/inference_service.h"

#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/method_handler.h>

#include <utility>

#include "common/mutex.h"
#include "router/access/request_id.h"
#include "router/frontend/call_metadata.h"
#include "router/frontend/frontend.h"
#include "router/frontend/pooled_call.h"
#include "router/frontend/stream_call.h"
#include "stagecoach/v1/inference.grpc.pb.h"

namespace stagecoach::router {
namespace {

constexpr char kAuthorization[] = "authorization";

template <typename Response>
class RefusedCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, Response> {
 public:
  RefusedCall(grpc::CallbackServerContext* context, const absl::Status& status) {
    AddRetryAfter(context, status);
    this->Finish(ToGrpc(status));
  }
  void OnDone() override { delete this; }
};

// Lives from the call's start to OnDone, which comes after the end and after the last reaction. The
// source drops its reference before that.
template <typename Request>
class StreamCall final : public ServerCall<Request, v1::GenerateResponse>, public ResponseWriter {
  using Base = ServerCall<Request, v1::GenerateResponse>;

 public:
  StreamCall(Frontend* frontend, grpc::CallbackServerContext* context, Caller caller)
      : Base(frontend, context, std::move(caller)), frontend_(frontend) {}

  bool Write(const v1::GenerateResponse& message) override {
    this->StartWrite(&message);
    return false;
  }
  void WriteLast(const v1::GenerateResponse& message) override {
    this->StartWriteAndFinish(&message, grpc::WriteOptions(), grpc::Status::OK);
  }
  void End(const absl::Status& status) override { Base::End(status); }

  void OnWriteDone(bool ok) override { source_->WriteDone(ok); }
  void OnCancel() override {
    std::shared_ptr<StreamSource> source;
    {
      MutexLock lock(mutex_);
      cancelled_ = true;
      source = source_;
    }
    if (source != nullptr) source->Cancel();
  }
  void OnDone() override { delete this; }

 private:
  void Begin() override {
    if (const absl::Status status = CheckRequestId(this->request().request_id()); !status.ok()) {
      return End(status);
    }
    const MaybeSource source =
        MakeSource(frontend_, this->request(),
                   {.traceparent = Traceparent(*this->context()), .caller = this->caller()}, this);
    if (!source.ok()) return End(source.status());
    bool cancelled;
    {
      MutexLock lock(mutex_);
      source_ = *source;
      cancelled = cancelled_;
    }
    (*source)->Start();
    if (cancelled) (*source)->Cancel();
  }

  Frontend* const frontend_;
  Mutex mutex_;
  std::shared_ptr<StreamSource> source_;  // guarded by mutex_ until it is there
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

template <typename Request, typename Response>
class UnaryCall final : public ServerCall<Request, Response> {
 public:
  using Work = std::function<absl::Status(const Caller&, const Request&, Response*)>;

  // Without `on_prompt_thread`, the work runs at once.
  UnaryCall(Frontend* frontend, grpc::CallbackServerContext* context, Caller caller,
            bool on_prompt_thread, Work work)
      : ServerCall<Request, Response>(frontend, context, std::move(caller)),
        queue_(on_prompt_thread ? frontend : nullptr),
        work_(std::move(work)) {}

  void OnDone() override { delete this; }

 private:
  void Begin() override {
    if (queue_ == nullptr) return Run();
    const absl::Status posted = queue_->Post([this] { Run(); });
    if (!posted.ok()) this->End(posted);
  }
  void Run() {
    const absl::Status status = work_(this->caller(), this->request(), &response_);
    if (!status.ok()) return this->End(status);
    this->StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }

  Frontend* const queue_;  // null: no queue
  const Work work_;
  Response response_;
};

// Embed or Rerank. Lives from the call's start to OnDone, which comes after the answer.
template <typename Request, typename Response>
class PooledServerCall final : public ServerCall<Request, Response> {
 public:
  PooledServerCall(Frontend* frontend, grpc::CallbackServerContext* context, Caller caller)
      : ServerCall<Request, Response>(frontend, context, std::move(caller)), frontend_(frontend) {}

  void OnCancel() override {
    std::shared_ptr<PooledCall> call;
    {
      MutexLock lock(mutex_);
      cancelled_ = true;
      call = call_;
    }
    if (call != nullptr) call->Cancel();
  }
  void OnDone() override { delete this; }

 private:
  void Begin() override {
    const std::shared_ptr<PooledCall> call = MakePooled(
        frontend_, std::make_shared<const Request>(this->request()), this->request().request_id(),
        {.traceparent = Traceparent(*this->context()), .caller = this->caller()},
        [this](absl::StatusOr<Response> response, MemoryBudget::Lease memory) {
          if (!response.ok()) return this->End(response.status());
          answer_memory_ = std::move(memory);
          response_ = *std::move(response);
          this->StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
        });
    if (call == nullptr) return;
    bool cancelled;
    {
      MutexLock lock(mutex_);
      call_ = call;
      cancelled = cancelled_;
    }
    call->PostStart();  // this object may be gone afterwards
    if (cancelled) call->Cancel();
  }

  Frontend* const frontend_;
  Response response_;
  MemoryBudget::Lease answer_memory_;
  Mutex mutex_;
  std::shared_ptr<PooledCall> call_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

InferenceService::InferenceService(Frontend* frontend, std::shared_ptr<Access> access)
    : frontend_(frontend), access_(std::move(access)) {
  using Kind = Access::Kind;
  AddStream<v1::GenerateRequest>("Generate", Kind::kWork);
  AddStream<v1::ChatRequest>("Chat", Kind::kWork);
  AddStream<v1::ResumeRequest>("Resume", Kind::kLook);
  AddUnary<v1::CancelRequest, v1::CancelResponse>(
      "Cancel", Kind::kLook, /*on_prompt_thread=*/false,
      [frontend](const Caller& caller, const v1::CancelRequest& request, v1::CancelResponse*) {
        return frontend->streams().Cancel(StreamOwner(StreamProtocol::kGrpc, caller),
                                          request.request_id());
      });
  AddPooled<v1::EmbedRequest, v1::EmbedResponse>("Embed");
  AddPooled<v1::RerankRequest, v1::RerankResponse>("Rerank");
  AddUnary<v1::TokenizeRequest, v1::TokenizeResponse>(
      "Tokenize", Kind::kWork, /*on_prompt_thread=*/true,
      [frontend](const Caller&, const v1::TokenizeRequest& request,
                 v1::TokenizeResponse* response) { return frontend->Tokenize(request, response); });
  AddUnary<v1::DetokenizeRequest, v1::DetokenizeResponse>(
      "Detokenize", Kind::kWork, /*on_prompt_thread=*/true,
      [frontend](const Caller&, const v1::DetokenizeRequest& request,
                 v1::DetokenizeResponse* response) {
        return frontend->Detokenize(request, response);
      });
  AddUnary<v1::ListModelsRequest, v1::ListModelsResponse>(
      "ListModels", Kind::kLook, /*on_prompt_thread=*/true,
      [frontend](const Caller&, const v1::ListModelsRequest&, v1::ListModelsResponse* response) {
        return frontend->DescribeModel(response->add_models());
      });
  AddUnary<v1::GetModelRequest, v1::Model>(
      "GetModel", Kind::kLook, /*on_prompt_thread=*/true,
      [frontend](const Caller&, const v1::GetModelRequest& request, v1::Model* response) {
        return frontend->GetModel(request, response);
      });
}

absl::StatusOr<Caller> InferenceService::Admit(const grpc::CallbackServerContext& context,
                                               Access::Kind kind) {
  absl::StatusOr<Caller> caller = access_->Admit(Metadata(context, kAuthorization), kind);
  if (caller.ok() && access_->has_keys()) frontend_->metrics().CountTenantRequest(caller->tenant);
  return caller;
}

template <typename Response>
void InferenceService::Add(
    const char* method, Access::Kind kind,
    std::function<Reactor<Response>*(grpc::CallbackServerContext*, Caller)> make) {
  const std::string& path =
      paths_.emplace_back(std::string("/") + v1::Inference::service_full_name() + "/" + method);
  AddMethod(new grpc::internal::RpcServiceMethod(
      path.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodCallback(
      static_cast<int>(paths_.size()) - 1,
      new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, Response>(
          [this, kind, make](grpc::CallbackServerContext* context) -> Reactor<Response>* {
            absl::StatusOr<Caller> caller = Admit(*context, kind);
            if (!caller.ok()) return new RefusedCall<Response>(context, caller.status());
            return make(context, *std::move(caller));
          }));
}

template <typename Request>
void InferenceService::AddStream(const char* method, Access::Kind kind) {
  Add<v1::GenerateResponse>(method, kind,
                            [this](grpc::CallbackServerContext* context, Caller caller) {
                              return new StreamCall<Request>(frontend_, context, std::move(caller));
                            });
}

template <typename Request, typename Response>
void InferenceService::AddPooled(const char* method) {
  Add<Response>(
      method, Access::Kind::kWork, [this](grpc::CallbackServerContext* context, Caller caller) {
        return new PooledServerCall<Request, Response>(frontend_, context, std::move(caller));
      });
}

template <typename Request, typename Response>
void InferenceService::AddUnary(const char* method, Access::Kind kind, bool on_prompt_thread,
                                Work<Request, Response> work) {
  Add<Response>(method, kind,
                [frontend = frontend_, on_prompt_thread, work = std::move(work)](
                    grpc::CallbackServerContext* context, Caller caller) {
                  return new UnaryCall<Request, Response>(frontend, context, std::move(caller),
                                                          on_prompt_thread, work);
                });
}

}  // namespace stagecoach::router
