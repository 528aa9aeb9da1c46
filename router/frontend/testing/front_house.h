// A whole router except for the workers: scheduler over the fake pipeline, frontend, gRPC server on
// a free port, and a client stub.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "common/rpc/server.h"
#include "router/frontend/frontend.h"
#include "router/frontend/grpc_server.h"
#include "router/journal/journal.h"
#include "router/scheduler/scheduler.h"
#include "router/scheduler/testing/fake_stage_client.h"
#include "router/text/testing/test_model.h"
#include "stagecoach/v1/inference.grpc.pb.h"

namespace stagecoach::router {

class FrontHouse {
 public:
  static SchedulerConfig Config() {
    SchedulerConfig config;
    config.n_microbatches = 2;
    config.max_sequences = 32;
    config.max_batched_tokens = 128;
    config.max_prefill_chunk = 32;
    config.max_model_len = 256;
    config.kv_groups = {{.window = 0, .n_blocks = 600}};
    return config;
  }

  explicit FrontHouse(const FakeStageClient::Options& pipeline_options = {},
                      const SchedulerConfig& config = Config(),
                      const FrontendOptions& frontend_options = {},
                      std::shared_ptr<Access> access_in = std::make_shared<Access>(),
                      ServedModel model = TestModel())
      : access(std::move(access_in)),
        journal(frontend_options.journal),
        pipeline(config, pipeline_options) {
    auto started = Scheduler::Start(config, &pipeline);
    REQUIRE(started.ok());
    scheduler = *std::move(started);
    FrontendOptions with_stages = frontend_options;
    with_stages.stages = [] {
      v1::StageStatus stage;
      stage.set_address("127.0.0.1:1");
      stage.set_n_layers(4);
      return std::vector{stage};
    };
    frontend = std::make_unique<Frontend>(with_stages, std::move(model), scheduler.get());
    auto listening = GrpcServer::Start("127.0.0.1:0", access, frontend.get());
    REQUIRE(listening.ok());
    server = *std::move(listening);
    stub = v1::Inference::NewStub(MakeChannel(server->address(), kMaxClientMessageBytes));
  }

  ~FrontHouse() {
    server.reset();
    scheduler->Stop();
    if (journal != nullptr) journal->Stop();
    frontend.reset();
    CHECK(pipeline.errors().empty());
  }

  // Blocks until no sequence holds a KV block or waits.
  void WaitUntilIdle() {
    while (true) {
      const SchedulerSnapshot snapshot = scheduler->Snapshot().get();
      if (snapshot.running == 0 && snapshot.waiting == 0) {
        REQUIRE(snapshot.kv[0].free_blocks == snapshot.kv[0].total_blocks);
        return;
      }
    }
  }
  void WaitUntilRunning(int32_t n) {
    while (scheduler->Snapshot().get().running < n) {
    }
  }

  // Until the scheduler has this many requests, which run or wait.
  void WaitUntilOpen(int32_t n) {
    for (SchedulerSnapshot now; now.running + now.waiting < n;) now = scheduler->Snapshot().get();
  }

  const std::shared_ptr<Access> access;
  Journal* const journal;
  FakeStageClient pipeline;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Frontend> frontend;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<v1::Inference::Stub> stub;
};

// The tokens that the fake pipeline generates for each choice of a request.
inline std::vector<std::vector<int32_t>> Expected(const v1::GenerateRequest& request) {
  const ServedModel model = TestModel();
  auto input = BuildGeneration(model, request);
  REQUIRE(input.ok());
  std::vector<std::vector<int32_t>> choices;
  for (const auto& sequence : MakeSequences(*input)) {
    choices.push_back(TokensAlone(*sequence, model.max_model_len));
  }
  return choices;
}

// Tokens per choice; requires messages without repetition or gap.
inline std::vector<std::vector<int32_t>> Tokens(const std::vector<v1::GenerateResponse>& messages,
                                                size_t n_choices) {
  std::vector<std::vector<int32_t>> tokens(n_choices);
  uint64_t position = 0;
  for (const v1::GenerateResponse& message : messages) {
    auto& choice = tokens[message.index()];
    choice.insert(choice.end(), message.token_ids().begin(), message.token_ids().end());
    position += message.token_ids_size();
    CHECK(message.position() == position);
  }
  return tokens;
}

}  // namespace stagecoach::router
