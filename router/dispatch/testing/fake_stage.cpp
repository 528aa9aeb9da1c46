#include "router/dispatch/testing/fake_stage.h"

#include <chrono>
#include <utility>

#include "common/check.h"

namespace stagecoach::router {

FakeStage::FakeStage(Options options) : options_(std::move(options)) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  SC_CHECK(server_ != nullptr && port != 0);
  address_ = "127.0.0.1:" + std::to_string(port);
}

FakeStage::~FakeStage() { Die(); }

void FakeStage::Die() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_ = nullptr;
}

grpc::Status FakeStage::Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                                 v1::DescribeResponse* response) {
  if (options_.on_describe) {
    if (grpc::Status status = options_.on_describe(); !status.ok()) return status;
  }
  response->set_device(options_.device);
  response->set_device_name(options_.device_name);
  response->set_memory_available_bytes(1 << 20);
  response->set_numerics(options_.numerics);
  if (options_.layers.count() > 0) *response->mutable_layers() = options_.layers;
  response->set_host("host");
  if (options_.lease.epoch() > 0) *response->mutable_lease() = options_.lease;
  return grpc::Status::OK;
}

grpc::Status FakeStage::Load(grpc::ServerContext* context, const v1::LoadRequest* request,
                             grpc::ServerWriter<v1::LoadProgress>* writer) {
  {
    MutexLock lock(mutex_);
    load_request_ = *request;
  }
  v1::LoadProgress progress;
  progress.set_bytes_total(100);
  progress.set_bytes_done(50);
  writer->Write(progress);
  if (!options_.load_status.ok()) return options_.load_status;
  while (options_.load_blocks && !context->IsCancelled()) {
    if (!writer->Write(progress)) break;
  }
  progress.set_bytes_done(100);
  progress.mutable_report()->set_checkpoint_id(options_.checkpoint_id);
  progress.mutable_report()->set_layers_id(options_.layers_id);
  progress.mutable_report()->set_kv_bytes(options_.kv_bytes);
  if (options_.knows_kv_dtype) {
    progress.mutable_report()->set_kv_dtype(request->config().kv_dtype());
  }
  if (options_.knows_hidden_dtype) {
    progress.mutable_report()->set_hidden_dtype(request->config().hidden_dtype());
  }
  progress.mutable_report()->set_one_row_ms(options_.layer_ms * request->n_layers());
  progress.mutable_report()->set_largest_step_ms(options_.layer_ms * request->n_layers());
  for (const uint64_t bytes : options_.kv_block_bytes) {
    progress.mutable_report()->add_kv_block_bytes(bytes);
  }
  writer->Write(progress);
  return grpc::Status::OK;
}

grpc::Status FakeStage::OfferLinks(grpc::ServerContext*, const v1::OfferLinksRequest* request,
                                   v1::OfferLinksResponse* response) {
  if (!options_.offers_links) return grpc::Status::OK;
  response->set_ready(true);
  if (request->stage() + 1 < request->n_stages()) {
    response->set_next("next of " + std::to_string(request->stage()));
  }
  if (request->stage() == 0) response->set_tokens("tokens");
  return grpc::Status::OK;
}

grpc::Status FakeStage::Join(grpc::ServerContext*, const v1::JoinRequest* request,
                             v1::JoinResponse* response) {
  response->set_kv_since_epoch(options_.kv_since_epoch);
  response->set_has_kv_store(options_.has_kv_store);
  response->set_has_state_store(options_.has_state_store);
  MutexLock lock(mutex_);
  join_request_ = *request;
  return options_.join_status;
}

grpc::Status FakeStage::PrepareGrammar(grpc::ServerContext*,
                                       const v1::PrepareGrammarRequest* request,
                                       v1::PrepareGrammarResponse*) {
  MutexLock lock(mutex_);
  grammars_.push_back(*request);
  return options_.prepare_status;
}

std::vector<v1::PrepareGrammarRequest> FakeStage::grammars() {
  MutexLock lock(mutex_);
  return grammars_;
}

grpc::Status FakeStage::Step(grpc::ServerContext*, Stream* stream) {
  v1::StepRequest request;
  if (!stream->Read(&request) || !request.has_hello()) return grpc::Status::CANCELLED;
  v1::StepResponse ready;
  ready.mutable_ready();
  if (options_.answers_hello) *ready.mutable_ready()->mutable_lease() = request.hello().lease();
  stream->Write(ready);
  {
    MutexLock lock(mutex_);
    stream_ = stream;
    changed_.notify_all();
  }
  grpc::Status status;
  while (status.ok() && stream->Read(&request)) {
    if (request.has_fetch()) {
      v1::StepResponse response;
      response.mutable_fetched()->set_id(request.fetch().id());
      response.mutable_fetched()->set_n_blocks(options_.on_fetch(request.fetch()));
      Send(response);
      continue;
    }
    {
      MutexLock lock(mutex_);
      steps_.push_back(request.plan().step());
    }
    if (options_.on_plan) status = options_.on_plan(request.plan());
  }
  MutexLock lock(mutex_);
  stream_ = nullptr;
  step_ended_ = true;
  changed_.notify_all();
  return status;
}

grpc::Status FakeStage::Stats(grpc::ServerContext*, const v1::StatsRequest*,
                              v1::StatsResponse* response) {
  if (options_.on_stats) options_.on_stats();
  response->set_compute_ms(5);
  return grpc::Status::OK;
}

void FakeStage::Send(const v1::StepResponse& response) {
  MutexLock lock(mutex_);
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stream_ != nullptr || step_ended_;
  });
  if (stream_ != nullptr) stream_->Write(response);
}

void FakeStage::SendResult(uint64_t epoch, uint64_t step) {
  v1::StepResponse response;
  response.mutable_result()->set_epoch(epoch);
  response.mutable_result()->set_step(step);
  Send(response);
}

void FakeStage::WaitForStreamEnd() {
  MutexLock lock(mutex_);
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return step_ended_; });
}

std::optional<v1::LoadRequest> FakeStage::load_request() {
  MutexLock lock(mutex_);
  return load_request_;
}

std::optional<v1::JoinRequest> FakeStage::join_request() {
  MutexLock lock(mutex_);
  return join_request_;
}

std::vector<uint64_t> FakeStage::steps() {
  MutexLock lock(mutex_);
  return steps_;
}

}  // namespace stagecoach::router
