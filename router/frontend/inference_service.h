// stagecoach.v1.Inference over gRPC's callback API: a stream is an object, not a thread.
#pragma once

#include "stagecoach/v1/inference.grpc.pb.h"

namespace stagecoach::router {

class Frontend;

// Thread-safe.
class InferenceService final : public v1::Inference::CallbackService {
 public:
  // `frontend` outlives the server that the service is registered with.
  explicit InferenceService(Frontend* frontend) : frontend_(frontend) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerWriteReactor<v1::GenerateResponse>* Chat(grpc::CallbackServerContext* context,
                                                       const v1::ChatRequest* request) override;
  grpc::ServerWriteReactor<v1::GenerateResponse>* Resume(grpc::CallbackServerContext* context,
                                                         const v1::ResumeRequest* request) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* context,
                                   const v1::CancelRequest* request,
                                   v1::CancelResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::Model* response) override;

 private:
  Frontend* const frontend_;
};

}  // namespace stagecoach::router
