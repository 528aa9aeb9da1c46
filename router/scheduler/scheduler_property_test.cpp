// Random loads and random pools: every sequence gets exactly the tokens that it gets alone, no plan
// has an error, and all blocks are free at the end.
#include <algorithm>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "catch2/generators/catch_generators_range.hpp"
#include "router/scheduler/core.h"
#include "router/scheduler/testing/fake_stage_client.h"
#include "router/scheduler/testing/recording_sink.h"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

struct Expected {
  std::shared_ptr<RecordingSink> sink;
  std::vector<int32_t> tokens;
  uint32_t n_prompt;
  bool prompt_logprobs;
  bool logprobs;
  bool cancelled = false;
};

// Whether the sequence was blamed for losses of the pipeline. In a random load it may be.
bool IsBlamed(const RecordingSink::Record& record) { return absl::IsInternal(record.error); }

int Pick(std::mt19937_64& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

SchedulerConfig RandomConfig(std::mt19937_64& random) {
  SchedulerConfig config;
  config.n_microbatches = 1 << Pick(random, 0, 2);
  config.max_sequences = Pick(random, 1, 24);
  config.max_batched_tokens = Pick(random, 1, 5) == 1 ? Pick(random, 1, 8) : Pick(random, 16, 200);
  config.max_prefill_chunk = Pick(random, 1, 4) == 1 ? Pick(random, 1, 16) : Pick(random, 16, 200);
  config.max_model_len = Pick(random, 40, 400);
  config.max_waiting = 100000;
  config.plan_ahead = Pick(random, 0, 3) > 0;
  config.prefix_cache = Pick(random, 0, 7) > 0;
  config.epoch = static_cast<uint64_t>(Pick(random, 1, 9));
  if (Pick(random, 0, 2) == 0) config.preempt_every = Pick(random, 1, 20);
  const int n_groups = Pick(random, 1, 3);
  const auto chunk =
      static_cast<uint32_t>(std::min(config.max_prefill_chunk, config.max_batched_tokens));
  for (int g = 0; g < n_groups; ++g) {
    SchedulerConfig::KvGroup group;
    if (Pick(random, 0, 1) == 1) group.window = Pick(random, 1, 100);
    const uint32_t least = KvBlocks({{group.window, 0}}, chunk)
                               .MostHeld(0, static_cast<uint32_t>(config.max_model_len));
    group.n_blocks = least + static_cast<uint32_t>(Pick(random, 0, 3) * Pick(random, 0, 20));
    config.kv_groups.push_back(group);
  }
  config.break_even_rows = Pick(random, 1, 300);
  return config;
}

std::unique_ptr<SequenceRequest> RandomRequest(std::mt19937_64& random, SequenceId id,
                                               const SchedulerConfig& config) {
  const int n_prompt = Pick(random, 1, config.max_model_len - 1);
  const int most = config.max_model_len - n_prompt;
  auto request = MakeRequest(id, n_prompt, Pick(random, 1, std::min(most, 60)));
  if (Pick(random, 0, 2) > 0) {
    // One of a few common prefixes.
    const auto like = MakeRequest(static_cast<SequenceId>(Pick(random, 1, 2)), n_prompt, 1);
    BeginLike(*like, Pick(random, 0, n_prompt), *request);
  }
  if (Pick(random, 0, 3) == 0) request->cache_salt = "a";
  const int tenant = Pick(random, 0, 5);
  if (tenant < 3) request->account = {std::string(1, static_cast<char>('a' + tenant)), 1u + tenant};
  request->priority = Pick(random, 0, 3) == 0 ? Pick(random, -1, 2) : 0;
  if (Pick(random, 0, 1) == 1) request->sampling.add_stop_ids(Pick(random, 0, 63));
  if (Pick(random, 0, 3) == 0) {
    request->sampling.set_min_tokens(static_cast<uint32_t>(Pick(random, 0, 20)));
  }
  if (Pick(random, 0, 4) == 0) request->sampling.set_n_prompt_logprobs(0);
  if (Pick(random, 0, 4) == 0) request->sampling.set_n_logprobs(1);
  return request;
}

Expected Expect(SequenceRequest& request, const SchedulerConfig& config) {
  auto sink = std::make_shared<RecordingSink>();
  request.sink = sink;
  return {sink, TokensAlone(request, config.max_model_len),
          static_cast<uint32_t>(request.prompt->size()), request.sampling.n_prompt_logprobs() >= 0,
          request.sampling.n_logprobs() >= 0};
}

void CheckOutcome(const Expected& expected) {
  const RecordingSink::Record record = expected.sink->record();
  REQUIRE(record.n_after_end == 0);
  if (!IsBlamed(record)) REQUIRE(record.error.ok());
  REQUIRE(record.tokens.size() <= expected.tokens.size());
  REQUIRE(std::equal(record.tokens.begin(), record.tokens.end(), expected.tokens.begin()));
  if (!expected.cancelled && !IsBlamed(record)) {
    REQUIRE(record.finish != Finish::kNone);
    REQUIRE(record.tokens.size() == expected.tokens.size());
    REQUIRE(record.prompt_logprobs.size() ==
            (expected.prompt_logprobs ? expected.n_prompt - 1 : 0));
  }
  for (size_t i = 0; i < record.prompt_logprobs.size(); ++i) {
    REQUIRE(record.prompt_logprobs[i] == static_cast<float>(i + 1));
  }
  REQUIRE(record.logprobs.size() == (expected.logprobs ? record.tokens.size() : 0));
  for (size_t i = 0; i < record.logprobs.size(); ++i) {
    REQUIRE(record.logprobs[i] == static_cast<float>(-record.tokens[i]));
  }
}

std::string Describe(const SchedulerConfig& config) {
  std::string text = absl::StrCat(
      "stages ", config.n_microbatches, " sequences ", config.max_sequences, " batch ",
      config.max_batched_tokens, " chunk ", config.max_prefill_chunk, " len ", config.max_model_len,
      " ahead ", config.plan_ahead, " preempt ", config.preempt_every);
  for (const auto& group : config.kv_groups) {
    absl::StrAppend(&text, " [", group.n_blocks, " window ", group.window, "]");
  }
  return text;
}

// Without threads: submissions, cancels and results come in random order.
void RunCore(uint64_t seed) {
  std::mt19937_64 random(seed);
  const SchedulerConfig config = RandomConfig(random);
  INFO("seed " << seed << ": " << Describe(config));
  REQUIRE(ValidateConfig(config).ok());
  SchedulerCore core(config);
  StrictStage stage(config);
  std::deque<v1::StepPlan> planned;    // that the stage has not executed yet
  std::deque<v1::StepResult> results;  // of executed steps
  const auto execute = [&] {
    results.push_back(stage.Apply(planned.front()));
    planned.pop_front();
    if (!stage.errors().empty()) FAIL(stage.errors().front());
  };
  std::map<SequenceId, Expected> expected;
  const SequenceId n_sequences = static_cast<SequenceId>(Pick(random, 1, 120));
  const int submit_weight = Pick(random, 1, 20);
  const int cancel_weight = Pick(random, 0, 1);
  const int loss_weight = Pick(random, 0, 3) == 0 ? Pick(random, 1, 20) : 0;  // per 1000 events
  const auto cancel_one = [&] {
    if (expected.empty()) return;
    const auto id = static_cast<SequenceId>(Pick(random, 1, static_cast<int>(expected.size())));
    if (!expected.at(id).sink->record().ended()) expected.at(id).cancelled = true;
    core.Cancel(id);
  };
  uint64_t n_events = 0;
  while (expected.size() < n_sequences || !core.empty() || !planned.empty() || !results.empty()) {
    REQUIRE(++n_events < 3'000'000);
    const int event = Pick(random, 0, 30);
    if (event < submit_weight && expected.size() < n_sequences) {
      std::vector<std::unique_ptr<SequenceRequest>> requests;
      const SequenceId id = expected.size() + 1;
      requests.push_back(RandomRequest(random, id, config));
      expected.emplace(id, Expect(*requests.back(), config));
      core.Submit(std::move(requests), std::chrono::steady_clock::now());
    } else if (event == 30 && cancel_weight == 1) {
      cancel_one();
    } else if (Pick(random, 1, 1000) <= loss_weight) {
      const uint64_t epoch = core.state().epoch() + 1;
      // Results of the old epoch come too late, or never.
      core.Interrupt(absl::UnavailableError("stage 1 is lost"));
      core.state().CheckConsistency();
      if (Pick(random, 0, 1) == 0) results.clear();
      planned.clear();
      REQUIRE(core.NextPlan() == nullptr);
      if (cancel_weight == 1 && Pick(random, 0, 3) == 0) cancel_one();
      const bool kv_kept = Pick(random, 0, 2) > 0;
      stage.BeginEpoch(epoch, kv_kept);
      core.Resume(epoch, kv_kept);
      core.state().CheckConsistency();
    } else if (!planned.empty() && Pick(random, 0, 1) == 0) {
      execute();  // stages run ahead of the results
    } else if (!planned.empty() || !results.empty()) {
      if (results.empty()) execute();
      core.Result(results.front());
      results.pop_front();
    }
    if (n_events % 16 == 0) core.state().CheckConsistency();
    while (std::unique_ptr<v1::StepPlan> plan = core.NextPlan()) {
      planned.push_back(std::move(*plan));
    }
  }
  core.state().CheckConsistency();
  for (const auto& [id, e] : expected) CheckOutcome(e);
  for (const auto& group : core.Snapshot().kv) REQUIRE(group.free_blocks == group.total_blocks);
}

TEST_CASE("Random loads give every sequence the same tokens as it gets alone") {
  const uint64_t seed = GENERATE(Catch::Generators::range<uint64_t>(1, 151));
  RunCore(seed);
}

// The same with the thread, the mailbox, and a pipeline that delays results randomly.
void RunThreaded(uint64_t seed) {
  std::mt19937_64 random(seed);
  const SchedulerConfig config = RandomConfig(random);
  INFO("seed " << seed << ": " << Describe(config));
  FakeStageClient client(config, {.max_delay_us = 50, .delay_seed = seed});
  auto scheduler = Scheduler::Start(config, &client);
  REQUIRE(scheduler.ok());
  std::vector<Expected> expected;
  const auto call = std::make_shared<ClientCall>();  // a single call, which a drain lets finish
  const auto n_sequences = static_cast<SequenceId>(Pick(random, 50, 150));
  for (SequenceId id = 1; id <= n_sequences; ++id) {
    std::vector<std::unique_ptr<SequenceRequest>> requests;
    requests.push_back(RandomRequest(random, id, config));
    requests.back()->call = call;
    expected.push_back(Expect(*requests.back(), config));
    (*scheduler)->Submit(std::move(requests));
    if (seed % 2 == 0 && Pick(random, 0, 19) == 0) {
      client.Interrupt(absl::UnavailableError("stage 1 is lost"));
    }
    if (Pick(random, 0, 9) == 0) {
      const int victim = Pick(random, 1, static_cast<int>(id));
      expected[victim - 1].cancelled = true;
      (*scheduler)->Cancel(static_cast<SequenceId>(victim));
    }
  }
  (*scheduler)->Drain().get();
  const SchedulerSnapshot snapshot = (*scheduler)->Snapshot().get();
  for (const auto& group : snapshot.kv) REQUIRE(group.free_blocks == group.total_blocks);
  REQUIRE(snapshot.running + snapshot.waiting == 0);
  scheduler->reset();
  REQUIRE(client.errors() == std::vector<std::string>{});
  for (const Expected& e : expected) CheckOutcome(e);
}

TEST_CASE("Random loads through the scheduler's thread") {
  const uint64_t seed = GENERATE(Catch::Generators::range<uint64_t>(1000, 1020));
  RunThreaded(seed);
}

}  // namespace
}  // namespace stagecoach::router
