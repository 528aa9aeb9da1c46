// Tests a generation with a slow reader, without gRPC.
#include "router/frontend/generation.h"

#include <prometheus/text_serializer.h>

#include <future>

#include "catch2/catch_test_macros.hpp"
#include "common/mutex.h"
#include "router/frontend/router_metrics.h"
#include "router/scheduler/scheduler.h"
#include "router/scheduler/testing/fake_stage_client.h"
#include "router/text/testing/test_model.h"

namespace stagecoach::router {
namespace {

// Keeps copies of messages; a write stays pending until the test completes it.
class SlowWriter final : public ResponseWriter {
 public:
  bool Write(const v1::GenerateResponse& message) override {
    Add(message, false, {});
    return false;
  }
  void WriteLast(const v1::GenerateResponse& message) override { Add(message, true, {}); }
  void End(const absl::Status& status) override { Add({}, true, status); }

  struct Call {
    v1::GenerateResponse message;
    bool is_last = false;
    absl::Status status;
  };
  Call WaitForCall(size_t n) {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.size() > n; });
    return calls_[n];
  }
  size_t n_calls() {
    MutexLock lock(mutex_);
    return calls_.size();
  }

 private:
  void Add(const v1::GenerateResponse& message, bool is_last, const absl::Status& status) {
    MutexLock lock(mutex_);
    calls_.push_back({message, is_last, status});
    changed_.notify_all();
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);
};

struct Fixture {
  Fixture() : pipeline(Config(), {.hold_results = true}) {
    scheduler = *Scheduler::Start(Config(), &pipeline);
    generation = std::make_shared<Generation>(
        Generation::Services{
            .model = &model, .scheduler = scheduler.get(), .metrics = &metrics, .lane = &lane},
        "id", 1, &writer);
  }
  ~Fixture() { scheduler.reset(); }

  static SchedulerConfig Config() {
    SchedulerConfig config;
    config.max_sequences = 8;
    config.max_model_len = 256;
    config.kv_groups = {{.window = 0, .n_blocks = 100}};
    return config;
  }

  void Start(uint32_t n, uint32_t max_tokens) {
    v1::GenerateRequest request;
    request.set_text("Hello");
    request.mutable_sampling()->set_n(n);
    request.mutable_sampling()->set_max_tokens(max_tokens);
    request.mutable_sampling()->set_ignore_eos(true);
    generation->Start(BuildGeneration(model, request));
  }
  // Waits until all results are released and have reached the generation.
  void FinishPipeline() {
    pipeline.ReleaseAll();
    while (scheduler->Snapshot().get().running > 0) {
    }
    std::promise<void> reached;
    lane.Post([&reached] { reached.set_value(); });
    reached.get_future().wait();
  }

  const ServedModel model = TestModel();
  const RouterMetrics metrics{"test-model"};
  SlowWriter writer;
  WorkQueue lane{1};
  FakeStageClient pipeline;
  std::unique_ptr<Scheduler> scheduler;
  std::shared_ptr<Generation> generation;
};

TEST_CASE("tokens that arrive during a write are merged") {
  Fixture fixture;
  fixture.Start(1, 50);
  fixture.pipeline.Release(1);
  CHECK(fixture.writer.WaitForCall(0).message.token_ids_size() == 1);
  fixture.FinishPipeline();
  CHECK(fixture.writer.n_calls() == 1);
  fixture.generation->WriteDone(true);
  const SlowWriter::Call last = fixture.writer.WaitForCall(1);
  CHECK(last.is_last);
  CHECK(last.message.token_ids_size() == 49);
  CHECK(last.message.finish_reason() == v1::FINISH_REASON_LENGTH);
  CHECK(last.message.usage().completion_tokens() == 50);
}

TEST_CASE("reasoning tokens are counted") {
  for (const bool is_open : {false, true}) {
    Fixture fixture;
    v1::GenerateRequest request;
    request.set_text("Hello");
    request.mutable_sampling()->set_max_tokens(20);
    request.mutable_sampling()->set_ignore_eos(true);
    auto input = BuildGeneration(fixture.model, request);
    REQUIRE(input.ok());
    input->output.separate_reasoning = true;
    if (is_open) input->output.reasoning_place = ReasoningPlace::kInside;
    fixture.generation->Start(std::move(input));
    fixture.pipeline.Release(1);
    CHECK(fixture.writer.WaitForCall(0).message.reasoning_tokens() == (is_open ? 1 : 0));
    fixture.FinishPipeline();
    fixture.generation->WriteDone(true);
    // The pipeline's tokens never spell "</think>": open reasoning does not end.
    const v1::GenerateResponse last = fixture.writer.WaitForCall(1).message;
    CHECK(last.reasoning_tokens() == (is_open ? 19 : 0));
    CHECK(last.usage().reasoning_tokens() == (is_open ? 20 : 0));
  }
}

TEST_CASE("merged choices take turns, and only the very last message has the usage") {
  Fixture fixture;
  fixture.Start(3, 20);
  fixture.pipeline.Release(1);
  fixture.writer.WaitForCall(0);
  fixture.FinishPipeline();
  std::vector<uint32_t> order;
  for (size_t i = 1;; ++i) {
    fixture.generation->WriteDone(true);
    const SlowWriter::Call call = fixture.writer.WaitForCall(i);
    order.push_back(call.message.index());
    CHECK(call.message.has_usage() == call.is_last);
    if (call.is_last) break;
  }
  CHECK(order == std::vector<uint32_t>{1, 2, 0});
}

TEST_CASE("a failed write cancels the sequences and ends the stream once") {
  Fixture fixture;
  fixture.Start(2, 50);
  fixture.pipeline.Release(1);
  fixture.writer.WaitForCall(0);
  fixture.generation->WriteDone(false);
  CHECK(absl::IsCancelled(fixture.writer.WaitForCall(1).status));
  fixture.generation->Cancel(absl::CancelledError("again"));
  fixture.FinishPipeline();
  CHECK(fixture.writer.n_calls() == 2);
}

TEST_CASE("a rejected request counts as a refusal, not as an abort") {
  Fixture fixture;
  const auto page = [&] {
    return prometheus::TextSerializer().Serialize(fixture.metrics.collectable()->Collect());
  };
  fixture.scheduler->Drain();
  fixture.Start(2, 5);
  CHECK(absl::IsUnavailable(fixture.writer.WaitForCall(0).status));
  CHECK(page().find("finished_reason=\"abort\"} 0") != std::string::npos);
  CHECK(page().find("reason=\"ending\"} 1") != std::string::npos);
}

TEST_CASE("a cancel before the request is ready takes effect once it is ready") {
  Fixture fixture;
  fixture.generation->Cancel(absl::CancelledError("gone"));
  std::promise<void> reached;
  fixture.lane.Post([&reached] { reached.set_value(); });
  reached.get_future().wait();
  CHECK(fixture.writer.n_calls() == 0);
  fixture.Start(1, 5);
  CHECK(absl::IsCancelled(fixture.writer.WaitForCall(0).status));
  CHECK(fixture.pipeline.plans().empty());
}

}  // namespace
}  // namespace stagecoach::router
