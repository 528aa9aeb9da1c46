// A SchedulerCore and a StrictStage that a test steps by hand, to inspect single plans.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/core.h"
#include "router/scheduler/testing/recording_sink.h"
#include "router/scheduler/testing/strict_stage.h"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {

class CorePipeline {
 public:
  // `store` outlives the pipeline; null: the stages have none.
  explicit CorePipeline(const SchedulerConfig& config, SchedulerHooks hooks = {},
                        FakeKvStore* store = nullptr)
      : core(config, std::move(hooks)),
        stage_(config, store),
        max_model_len_(config.max_model_len) {
    REQUIRE(ValidateConfig(config).ok());
  }

  std::shared_ptr<RecordingSink> Submit(std::unique_ptr<SequenceRequest> request) {
    auto sink = std::make_shared<RecordingSink>();
    request->sink = sink;
    expected_.push_back({sink, TokensAlone(*request, max_model_len_)});
    core.Submit(Alone(std::move(request)), std::chrono::steady_clock::now());
    return sink;
  }

  // The stages answer all fetches that were not answered. Returns their number.
  size_t AnswerFetches() {
    const auto fetches = core.TakeFetches();
    for (const auto& fetch : fetches) Answer(*fetch);
    return fetches.size();
  }
  void Answer(const v1::KvFetch& fetch) {
    core.Fetched(stage_.Fetch(fetch));
    core.state().CheckConsistency();
  }
  size_t n_held_fetches() const { return stage_.n_held(); }

  // Plans one step. False if there is nothing to send.
  bool PlanOne() {
    std::unique_ptr<v1::StepPlan> plan = core.NextPlan();
    core.state().CheckConsistency();
    if (plan == nullptr) return false;
    plans.push_back(*plan);
    planned_.push_back(std::move(*plan));
    return true;
  }
  // Plans until no more steps may be in flight.
  void Fill() {
    while (PlanOne()) {
    }
  }
  // The stage executes the oldest step that it has not executed.
  void Execute() {
    results_.push_back(stage_.Apply(planned_.front()));
    planned_.pop_front();
    if (!stage_.errors().empty()) FAIL(stage_.errors().front());
  }
  // Delivers the result of the oldest step.
  void Deliver() {
    if (results_.empty()) Execute();
    core.Result(results_.front());
    results_.pop_front();
  }
  bool HasInFlight() const { return !results_.empty() || !planned_.empty(); }
  // Calls Deliver, then Fill, n times.
  void Turn(int n_results) {
    for (int i = 0; i < n_results && HasInFlight(); ++i) {
      Deliver();
      Fill();
    }
  }
  // The pipeline is lost: results in flight never come, and the stage has executed only the first
  // n_executed of these steps.
  void Interrupt(int n_executed = 0) {
    for (int i = 0; i < n_executed && !planned_.empty(); ++i) Execute();
    planned_.clear();
    results_.clear();
    core.Interrupt(absl::UnavailableError("stage 1 is lost"));
    core.state().CheckConsistency();
  }
  // The stages are there again, and know nothing or, with kv_kept, the contents of blocks.
  void Resume(bool kv_kept = false) {
    const uint64_t epoch = core.state().epoch() + 1;
    stage_.BeginEpoch(epoch, kv_kept);
    core.Resume(epoch, kv_kept);
    core.state().CheckConsistency();
  }
  void RunToEnd() {
    do {
      AnswerFetches();
      Fill();
      Turn(1);
    } while (HasInFlight() || AnswerFetches() > 0);
    REQUIRE(core.empty());
    for (const auto& group : core.Snapshot().kv) REQUIRE(group.free_blocks == group.total_blocks);
  }
  // Every submitted sequence has ended with the tokens that it generates alone.
  void RequireAllAsAlone() const {
    for (const auto& [sink, tokens] : expected_) {
      REQUIRE(sink->record().tokens == tokens);
      REQUIRE(sink->record().finish != Finish::kNone);
    }
  }

  SchedulerCore core;
  std::vector<v1::StepPlan> plans;

 private:
  StrictStage stage_;
  int32_t max_model_len_;
  std::deque<v1::StepPlan> planned_;    // not executed yet
  std::deque<v1::StepResult> results_;  // of executed steps
  std::vector<std::pair<std::shared_ptr<RecordingSink>, std::vector<int32_t>>> expected_;
};

// One full-attention group.
inline SchedulerConfig SmallConfig(int n_stages, uint64_t n_blocks) {
  SchedulerConfig config;
  config.n_microbatches = n_stages;
  config.max_sequences = 16;
  config.max_batched_tokens = 128;
  config.max_prefill_chunk = 128;
  config.max_model_len = 256;
  config.kv_groups = {{.window = 0, .n_blocks = n_blocks}};
  return config;
}

}  // namespace stagecoach::router
