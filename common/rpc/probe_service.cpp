#include "common/rpc/probe_service.h"

#include <grpcpp/grpcpp.h>

#include "grpc/health/v1/health.pb.h"

namespace stagecoach {
namespace {

using grpc::health::v1::HealthCheckResponse;

class Answer final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Answer(bool serving) {
    HealthCheckResponse response;
    response.set_status(serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
    const grpc::Slice bytes(response.SerializeAsString());
    response_ = grpc::ByteBuffer(&bytes, 1);
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  explicit Answer(const grpc::Status& refusal) { Finish(refusal); }

 private:
  void OnDone() override { delete this; }

  grpc::ByteBuffer response_;
};

}  // namespace

grpc::ServerGenericBidiReactor* ProbeService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  if (context->method() == kProbePath) return new Answer(serving_.load());
  return new Answer(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no such method here"));
}

}  // namespace stagecoach
