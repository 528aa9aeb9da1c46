// For tests: workers with a toy model behind real servers, and the router's side of their calls.
#pragma once

#include <grpcpp/grpcpp.h>

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/rpc/server.h"
#include "common/status.h"
#include "common/temp_dir.h"
#include "kernels/reference/reference_ops.h"
#include "worker/service/stage_service.h"
#include "worker/stage/testing/toy_pipeline.h"
#include "worker/transport/grpc_transport.h"

namespace stagecoach::worker {

inline absl::StatusOr<std::unique_ptr<StageModel>> LoadToy(const StageModelOptions& options,
                                                           kernels::Ops*,
                                                           const LoadProgressFn& progress) {
  if (options.model_dir == "broken") return absl::InvalidArgumentError("three tensors are missing");
  if (options.model_dir == "throws") throw std::runtime_error("no more threads");
  SC_RETURN_IF_ERROR(progress(500, 1000));
  for (uint64_t left = 1; options.model_dir == "endless"; ++left) {
    SC_RETURN_IF_ERROR(progress(left, UINT64_MAX));
  }
  SC_RETURN_IF_ERROR(progress(1000, 1000));
  return std::make_unique<ToyModel>(
      ToyModelOptions{.first_layer = options.first_layer,
                      .n_layers = options.n_layers,
                      .max_batched_tokens = options.config.max_batched_tokens()});
}

// A worker with a toy model behind a real server.
class ToyWorker {
 public:
  explicit ToyWorker(std::unique_ptr<kernels::Ops> ops = kernels::MakeReferenceOps(),
                     const GrpcTransportOptions& transport = {},
                     const std::string& tuning_folder = "")
      : ops_(std::move(ops)),
        transport_(transport),
        service_(
            ops_.get(), 1, &transport_, LoadToy, {},
            [this](const absl::Status&) { device_lost_.Notify(); }, nullptr, tuning_folder) {
    grpc::ServerBuilder builder;
    ApplyServerDefaults(builder, kMaxInternalMessageBytes);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    builder.RegisterService(transport_.service());
    server_ = builder.BuildAndStart();
    stub_ = v1::Stage::NewStub(MakeChannel(address(), kMaxInternalMessageBytes));
  }
  ~ToyWorker() { Die(); }

  void Die() {
    if (server_ == nullptr) return;
    service_.Shutdown();
    transport_.Shutdown();
    server_->Shutdown();
    server_.reset();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  v1::Stage::Stub& stub() { return *stub_; }
  StageService& service() { return service_; }
  const absl::Notification& device_lost() const { return device_lost_; }

 private:
  std::unique_ptr<kernels::Ops> ops_;
  GrpcTransport transport_;
  absl::Notification device_lost_;
  StageService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Stage::Stub> stub_;
};

inline v1::Lease LeaseFor(uint64_t epoch, const std::string& holder = "router") {
  v1::Lease lease;
  lease.set_epoch(epoch);
  lease.set_holder(holder);
  return lease;
}

// A folder with the one file that the id of made-up weights depends on.
inline std::string ToyModelDir() {
  static const TempDir dir;
  dir.Write("config.json", "{}");
  return dir.path();
}

inline v1::LoadRequest LoadRequestFor(uint32_t stage, uint32_t n_stages,
                                      const v1::Lease& lease = LeaseFor(1)) {
  v1::LoadRequest request;
  *request.mutable_lease() = lease;
  request.set_model_dir(ToyModelDir());
  request.set_stage(stage);
  request.set_n_stages(n_stages);
  const uint32_t first = kToyLayers * stage / n_stages;
  request.set_first_layer(first);
  request.set_n_layers(kToyLayers * (stage + 1) / n_stages - first);
  *request.mutable_config() = ToyLimits().config;
  request.mutable_config()->set_load_format(v1::LOAD_FORMAT_DUMMY);
  request.set_n_local_workers(n_stages);
  return request;
}

struct Loaded {
  grpc::Status status;
  std::vector<v1::LoadProgress> progress;
};

inline Loaded Load(ToyWorker& worker, const v1::LoadRequest& request) {
  grpc::ClientContext context;
  auto reader = worker.stub().Load(&context, request);
  Loaded loaded;
  for (v1::LoadProgress progress; reader->Read(&progress);) loaded.progress.push_back(progress);
  loaded.status = reader->Finish();
  return loaded;
}

// A load that has begun and continues until it is ended.
struct EndlessLoad {
  explicit EndlessLoad(ToyWorker& worker) {
    v1::LoadRequest request = LoadRequestFor(0, 1);
    request.set_model_dir("endless");
    reader = worker.stub().Load(&context, request);
    v1::LoadProgress progress;
    REQUIRE(reader->Read(&progress));
  }
  // Drains the remaining progress messages first.
  grpc::StatusCode End() {
    for (v1::LoadProgress progress; reader->Read(&progress);) {
    }
    return reader->Finish().error_code();
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::LoadProgress>> reader;
};

inline v1::JoinRequest JoinRequestFor(std::vector<std::unique_ptr<ToyWorker>>& workers,
                                      size_t stage, uint64_t epoch,
                                      uint64_t kv_blocks = ToyPipeline::kBlocks) {
  v1::JoinRequest request;
  *request.mutable_lease() = LeaseFor(epoch);
  request.set_stage(static_cast<uint32_t>(stage));
  request.set_n_stages(static_cast<uint32_t>(workers.size()));
  if (stage + 1 < workers.size()) {
    request.set_next_address(workers[stage + 1]->address());
  } else if (workers.size() > 1) {
    request.set_first_address(workers[0]->address());
  }
  for (int g = 0; g < 2; ++g) request.add_kv_blocks(kv_blocks);
  return request;
}

inline grpc::Status Join(std::vector<std::unique_ptr<ToyWorker>>& workers, size_t stage,
                         uint64_t epoch, uint64_t kv_blocks = ToyPipeline::kBlocks) {
  grpc::ClientContext context;
  v1::JoinResponse response;
  return workers[stage]->stub().Join(&context, JoinRequestFor(workers, stage, epoch, kv_blocks),
                                     &response);
}

inline std::vector<std::unique_ptr<ToyWorker>> LoadedWorkers(uint32_t n_stages) {
  std::vector<std::unique_ptr<ToyWorker>> workers;
  for (uint32_t stage = 0; stage < n_stages; ++stage) {
    workers.push_back(std::make_unique<ToyWorker>());
    REQUIRE(Load(*workers.back(), LoadRequestFor(stage, n_stages)).status.ok());
  }
  return workers;
}

inline void JoinAll(std::vector<std::unique_ptr<ToyWorker>>& workers, uint64_t epoch) {
  std::vector<grpc::Status> joined(workers.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] {
      // The worker may not yet know that the stream of its last router has ended.
      do joined[i] = Join(workers, i, epoch);
      while (joined[i].error_code() == grpc::StatusCode::FAILED_PRECONDITION &&
             joined[i].error_message().find("in use") != std::string::npos);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& status : joined) {
    INFO(status.error_message());
    REQUIRE(status.ok());
  }
}

// A router's step stream to one stage.
class StepStream {
 public:
  StepStream(ToyWorker& worker, uint64_t epoch) : StepStream(worker, LeaseFor(epoch)) {}
  StepStream(ToyWorker& worker, const v1::Lease& lease) : stream_(worker.stub().Step(&context_)) {
    v1::StepRequest request;
    *request.mutable_hello()->mutable_lease() = lease;
    stream_->Write(request);
  }

  bool Ready() {
    v1::StepResponse response;
    return Read(&response) && response.has_ready();
  }
  bool Send(const v1::StepPlan& plan) {
    v1::StepRequest request;
    *request.mutable_plan() = plan;
    return stream_->Write(request);
  }
  std::optional<v1::StepResult> Next() {
    v1::StepResponse response;
    if (!Read(&response) || !response.has_result()) return std::nullopt;
    return response.result();
  }
  bool HearsDraining() {
    v1::StepResponse response;
    return Read(&response) && response.has_draining();
  }
  std::optional<v1::StepProgress> NextProgress() {
    v1::StepResponse response;
    while (stream_->Read(&response)) {
      if (response.has_progress()) return response.progress();
    }
    return std::nullopt;
  }
  void HangUp() { context_.TryCancel(); }
  // Ends our side, then waits for the worker's status.
  grpc::Status Finish() {
    stream_->WritesDone();
    return Wait();
  }
  grpc::Status Wait() {
    v1::StepResponse response;
    while (stream_->Read(&response)) {
    }
    return stream_->Finish();
  }

 private:
  // Reads the next message other than progress.
  bool Read(v1::StepResponse* response) {
    while (stream_->Read(response)) {
      if (!response->has_progress()) return true;
    }
    return false;
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepRequest, v1::StepResponse>> stream_;
};

inline std::vector<std::unique_ptr<StepStream>> OpenAll(
    std::vector<std::unique_ptr<ToyWorker>>& workers, uint64_t epoch) {
  std::vector<std::unique_ptr<StepStream>> streams;
  for (auto& worker : workers) {
    streams.push_back(std::make_unique<StepStream>(*worker, epoch));
    REQUIRE(streams.back()->Ready());
  }
  return streams;
}

// Generates through the streams and compares with the result of the sequence alone.
inline void RequireServes(std::vector<std::unique_ptr<StepStream>>& streams, uint64_t epoch) {
  std::vector<ToySequence> sequences(1);
  sequences[0].prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3};
  sequences[0].n_generate = 12;
  sequences[0].sampling = Greedy();
  ToySequence alone = sequences[0];
  GenerateAlone(&alone);
  ToyPlanner planner(epoch, &sequences, {});
  uint64_t n_plans = 0;
  while (auto plan = planner.Next()) {
    REQUIRE(streams.front()->Send(*plan));
    ++n_plans;
  }
  std::vector<int32_t> tokens;
  for (uint64_t step = 1; step <= n_plans; ++step) {
    const auto result = streams.back()->Next();
    REQUIRE(result.has_value());
    REQUIRE(result->step() == step);
    for (const auto& slot : result->slots()) tokens.push_back(slot.token());
  }
  CHECK(tokens == alone.generated);
}

}  // namespace stagecoach::worker
