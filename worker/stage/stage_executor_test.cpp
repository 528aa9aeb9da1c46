#include "worker/stage/stage_executor.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/stage/testing/toy_pipeline.h"

namespace stagecoach::worker {
namespace {

std::vector<ToySequence> RandomSequences(int n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<ToySequence> sequences(n);
  for (ToySequence& sequence : sequences) {
    sequence.prompt.resize(1 + random() % 60);
    for (int32_t& token : sequence.prompt) token = static_cast<int32_t>(random() % kToyVocab);
    sequence.n_generate = static_cast<int32_t>(1 + random() % 20);
    sequence.sampling = Greedy();
  }
  return sequences;
}

// Sets every sampling option, in different combinations.
void VarySampling(std::vector<ToySequence>& sequences) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    v1::SlotSampling& s = sequences[i].sampling;
    s.set_temperature(i % 3 == 0 ? 0.0f : 0.9f);
    s.set_seed(1000 + i);
    if (i % 2 == 0) s.set_frequency_penalty(0.5f);
    if (i % 4 == 0) s.set_repetition_penalty(1.3f);
    if (i % 5 == 0) s.set_presence_penalty(0.7f);
    if (i % 3 == 1) s.set_top_k(20);
    if (i % 3 == 2) s.set_top_p(0.9f);
    s.set_min_tokens(i % 4);
    s.add_stop_ids(static_cast<int32_t>(i) % kToyVocab);
    s.add_stop_ids(7);
    s.add_bias_ids(11);
    s.add_bias_values(i % 2 == 0 ? -2.0f : 1.5f);
    s.set_n_logprobs(static_cast<int32_t>(i % 4) - 1);
    s.set_n_prompt_logprobs(static_cast<int32_t>(i % 3) - 1);
  }
}

// Adds every kind of grammar. Some sequences have none; some have min_tokens or ignore_eos.
void AddGrammars(std::vector<ToySequence>& sequences) {
  const std::vector<std::pair<v1::GrammarKind, const char*>> grammars = {
      {v1::GRAMMAR_KIND_JSON_SCHEMA,
       R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},
           "required":["a","b"],"additionalProperties":false})"},
      {v1::GRAMMAR_KIND_JSON_OBJECT, ""},
      {v1::GRAMMAR_KIND_REGEX, "(ab|[0-9]{2,4})*"},
      {v1::GRAMMAR_KIND_CHOICE, R"(["true","null","ab12"])"},
      {v1::GRAMMAR_KIND_LARK, "start: \"[\" /[a-f]+/ \"]\""},
  };
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (i % 3 == 2) continue;
    v1::SlotSampling& sampling = sequences[i].sampling;
    v1::SlotGrammar& grammar = *sampling.mutable_grammar();
    const auto& [kind, source] = grammars[i % grammars.size()];
    grammar.set_kind(kind);
    grammar.set_source(source);
    grammar.add_end_ids(0);
    if (i % 2 == 0) grammar.add_end_ids(1);
    grammar.set_end_late(i % 4 == 1);
    grammar.set_any_whitespace(i % 5 == 0);
    sampling.add_stop_ids(0);
    sequences[i].n_generate = 20;
  }
}

void RequireSameAsAlone(const std::vector<ToySequence>& sequences) {
  for (const ToySequence& sequence : sequences) {
    ToySequence alone{.prompt = sequence.prompt,
                      .n_generate = sequence.n_generate,
                      .sampling = sequence.sampling};
    GenerateAlone(&alone);
    REQUIRE(sequence.generated == alone.generated);
    const auto same = [](const auto& a, const auto& b) {
      REQUIRE(a.size() == b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        REQUIRE(a[i].SerializeAsString() == b[i].SerializeAsString());
      }
    };
    same(sequence.logprobs, alone.logprobs);
    same(sequence.prompt_logprobs, alone.prompt_logprobs);
  }
}

bool Mentions(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

// Runs 14 sequences in 4 slots. Slots and blocks are reused, also while steps of their old
// sequences are in flight.
void RunInFewSlots(ToyPipeline& pipeline, std::vector<ToySequence>& sequences, int32_t chunk,
                   int32_t in_flight) {
  pipeline.Start(1);
  ToyPlanner planner(1, &sequences, {.n_slots = 4, .chunk = chunk, .max_in_flight = in_flight});
  const absl::Status status = planner.Run(pipeline);
  INFO(status.ToString());
  REQUIRE(status.ok());
  RequireSameAsAlone(sequences);
}

TEST_CASE("any split, chunk and plan-ahead gives the same tokens as each sequence alone") {
  const int32_t n_stages = GENERATE(1, 2, 4);
  const int32_t chunk = GENERATE(3, 16);
  const int32_t in_flight = GENERATE(1, 3, 200);
  auto sequences = RandomSequences(14, 7);
  VarySampling(sequences);
  if (GENERATE(false, true)) AddGrammars(sequences);
  ToyPipeline pipeline(n_stages, GENERATE(ToyPipeline::Kind::kHost, ToyPipeline::Kind::kRunsAhead));
  RunInFewSlots(pipeline, sequences, chunk, in_flight);
}

TEST_CASE("device-to-device messages give the same tokens as messages through the host") {
  const int32_t n_stages = GENERATE(2, 3, 4);
  const int32_t chunk = GENERATE(3, 16);
  const int32_t in_flight = GENERATE(1, 3, 200);
  auto sequences = RandomSequences(14, 7);
  VarySampling(sequences);
  ToyPipeline pipeline(n_stages, ToyPipeline::Kind::kDeviceChannels);
  RunInFewSlots(pipeline, sequences, chunk, in_flight);
  // Times come from the device.
  const v1::StatsResponse stats = pipeline.stage(1).Stats(false);
  CHECK(stats.compute_ms() == 2.0 * static_cast<double>(stats.steps()));
  CHECK(stats.wait_send_ms() == 3.0 * static_cast<double>(stats.steps()));
  CHECK(stats.bubbles() == stats.steps());  // each step waited for a millisecond
  CHECK_FALSE(stats.has_hop_seconds());
}

TEST_CASE("rows of 16 bits travel in half the bytes, through the host and between devices") {
  const auto kind = GENERATE(ToyPipeline::Kind::kHost, ToyPipeline::Kind::kRunsAhead,
                             ToyPipeline::Kind::kDeviceChannels);
  auto sequences = RandomSequences(14, 7);
  ToyPipeline pipeline(3, kind, /*embeds=*/false, v1::HIDDEN_DTYPE_BFLOAT16);
  RunInFewSlots(pipeline, sequences, 7, 3);
  if (kind == ToyPipeline::Kind::kDeviceChannels) return;  // these check each message's size
  REQUIRE(pipeline.first().Drain().ok());
  const v1::StatsResponse stats = pipeline.first().Stats(false);
  CHECK(stats.hidden().sent_bytes() == stats.tokens() * kToyHidden * sizeof(uint16_t));
}

TEST_CASE("output of a failed call is not sent on") {
  ToyPipeline pipeline(2, ToyPipeline::Kind::kDeviceChannels);
  pipeline.Start(1);
  pipeline.FailDevice(0);
  auto sequences = RandomSequences(1, 7);
  REQUIRE(pipeline.first().Submit(*ToyPlanner(1, &sequences, {}).Next()).ok());
  CHECK(Mentions(pipeline.results().AwaitClosed(), "the device is lost"));
  CHECK(pipeline.transport(0).Counters(Channel::kHidden).sent_frames == 0);
}

TEST_CASE("a sequence that is preempted and registered again gives the same tokens") {
  auto sequences = RandomSequences(1, 3);
  ToySequence& sequence = sequences[0];
  if (GENERATE(false, true)) AddGrammars(sequences);
  sequence.n_generate = 10;
  ToySequence alone = sequence;
  GenerateAlone(&alone);

  // Registers its first four tokens again, as the router does after a preemption.
  ToyPipeline pipeline(2);
  pipeline.Start(5);
  v1::StepPlan plan;
  plan.set_epoch(5);
  plan.set_step(1);
  auto* registration = plan.add_registrations();
  registration->mutable_tokens()->Add(sequence.prompt.begin(), sequence.prompt.end());
  registration->mutable_tokens()->Add(alone.generated.begin(), alone.generated.begin() + 4);
  registration->set_n_prompt(static_cast<uint32_t>(sequence.prompt.size()));
  *registration->mutable_sampling() = sequence.sampling;
  auto* slot = plan.add_slots();
  slot->set_n_tokens(registration->tokens_size());
  slot->set_sample(true);
  for (int g = 0; g < 2; ++g) {
    auto* blocks = slot->add_new_blocks();
    for (uint32_t b = 0; b < 5; ++b) blocks->add_ids(b);
  }
  REQUIRE(pipeline.first().Submit(plan).ok());
  const auto result = pipeline.results().Next();
  REQUIRE(result.ok());
  CHECK(result->slots(0).token() == alone.generated[4]);
}

v1::StepPlan OneToken(const v1::SlotGrammar& grammar) {
  v1::StepPlan plan;
  plan.set_epoch(1);
  plan.set_step(1);
  auto* registration = plan.add_registrations();
  registration->add_tokens(3);
  registration->set_n_prompt(1);
  *registration->mutable_sampling() = Greedy();
  *registration->mutable_sampling()->mutable_grammar() = grammar;
  auto* slot = plan.add_slots();
  slot->set_n_tokens(1);
  slot->set_sample(true);
  for (int g = 0; g < 2; ++g) slot->add_new_blocks()->add_ids(0);
  return plan;
}

TEST_CASE("if a grammar cannot be followed, only its own sequence fails") {
  ToyPipeline pipeline(2);
  pipeline.Start(1);
  v1::SlotGrammar grammar;
  grammar.set_kind(v1::GRAMMAR_KIND_REGEX);
  grammar.set_source("(");
  grammar.add_end_ids(0);
  v1::StepPlan plan = OneToken(grammar);
  plan.add_registrations()->CopyFrom(plan.registrations(0));
  plan.mutable_registrations(1)->set_slot(1);
  plan.mutable_registrations(1)->mutable_sampling()->mutable_grammar()->set_source("ab");
  plan.add_slots()->CopyFrom(plan.slots(0));
  plan.mutable_slots(1)->set_slot(1);
  for (auto& blocks : *plan.mutable_slots(1)->mutable_new_blocks()) blocks.set_ids(0, 1);
  REQUIRE(pipeline.first().Submit(plan).ok());
  const auto result = pipeline.results().Next();
  REQUIRE(result.ok());
  REQUIRE(result->slots_size() == 2);
  CHECK(result->slots(0).sampled());
  CHECK(result->slots(0).failure().find("regex") != std::string::npos);
  CHECK(result->slots(1).failure().empty());
  CHECK(result->slots(1).token() >= 2);
}

TEST_CASE("a step without rows still gives a result") {
  ToyPipeline pipeline(3);
  pipeline.Start(1);
  for (uint64_t step = 1; step <= 3; ++step) {
    v1::StepPlan plan;
    plan.set_epoch(1);
    plan.set_step(step);
    REQUIRE(pipeline.first().Submit(plan).ok());
  }
  for (uint64_t step = 1; step <= 3; ++step) {
    const auto result = pipeline.results().Next();
    REQUIRE(result.ok());
    CHECK(result->step() == step);
    CHECK(result->epoch() == 1);
    CHECK(result->slots_size() == 0);
  }
}

TEST_CASE("a fault on any channel closes every stage, and a new epoch works") {
  const Channel channel = GENERATE(Channel::kMetadata, Channel::kHidden, Channel::kTokens);
  const bool sending = GENERATE(true, false);
  const uint64_t n_frames = GENERATE(0u, 5u);
  ToyPipeline pipeline(3);
  pipeline.Start(1);
  const absl::Status cut = absl::UnavailableError("stage 9 at far.example:1: link lost");
  const bool tokens = channel == Channel::kTokens;
  if (sending) {
    pipeline.transport(tokens ? 2 : 1).FailSend(channel, n_frames, cut);
  } else {
    pipeline.transport(tokens ? 0 : 1).FailReceive(channel, n_frames, cut);
  }
  auto sequences = RandomSequences(6, 11);
  for (ToySequence& sequence : sequences) sequence.n_generate = 20;
  const absl::Status status = ToyPlanner(1, &sequences, {}).Run(pipeline);
  CHECK(absl::IsUnavailable(status));
  for (size_t i = 0; i < pipeline.size(); ++i) {
    const absl::Status heard = pipeline.heard(i).AwaitClosed();
    CHECK(absl::IsUnavailable(heard));
    CHECK(Mentions(heard, "stage 9 at far.example:1"));
  }
  CHECK(pipeline.first().Submit({}) == pipeline.heard(0).AwaitClosed());

  pipeline.Start(2);
  sequences = RandomSequences(6, 12);
  REQUIRE(ToyPlanner(2, &sequences, {}).Run(pipeline).ok());
  RequireSameAsAlone(sequences);
}

TEST_CASE("an invalid plan ends the epoch with a reason before any stage computes it") {
  ToyPipeline pipeline(2);
  pipeline.Start(1);
  v1::StepPlan plan;
  plan.set_epoch(1);
  plan.set_step(1);
  auto* slot = plan.add_slots();
  slot->set_slot(2);
  slot->set_n_tokens(1);
  REQUIRE(pipeline.first().Submit(plan).ok());
  const absl::Status heard = pipeline.heard(0).AwaitClosed();
  CHECK(absl::IsFailedPrecondition(heard));
  CHECK(Mentions(heard, "step 1: slot 2: not registered"));
  CHECK(absl::IsUnavailable(pipeline.heard(1).AwaitClosed()));
  CHECK(pipeline.stage(0).Stats(false).steps() == 0);
}

TEST_CASE("steps whose hidden states wait for metadata are counted") {
  ToyPipeline pipeline(2);
  pipeline.Start(1);
  pipeline.transport(1).Hold(Channel::kMetadata);
  auto sequences = RandomSequences(1, 1);
  sequences[0].prompt.assign(12, 1);
  ToyPlanner planner(1, &sequences, {.chunk = 6});
  for (int i = 0; i < 2; ++i) REQUIRE(pipeline.first().Submit(*planner.Next()).ok());
  pipeline.transport(1).AwaitHeld(Channel::kMetadata);
  pipeline.transport(1).AwaitProcessed(Channel::kHidden, 1);
  pipeline.transport(1).Release(Channel::kMetadata);
  for (int i = 0; i < 2; ++i) REQUIRE(pipeline.results().Next().ok());
  CHECK(pipeline.stage(1).Stats(false).metadata_late_steps() >= 1);
}

TEST_CASE("metadata reaches the next stage while hidden states are delayed") {
  ToyPipeline pipeline(2);
  pipeline.Start(1);
  pipeline.transport(1).Hold(Channel::kHidden);
  auto sequences = RandomSequences(3, 5);
  ToyPlanner planner(1, &sequences, {.n_slots = 3});
  for (int i = 0; i < 3; ++i) REQUIRE(pipeline.first().Submit(*planner.Next()).ok());
  pipeline.transport(1).AwaitProcessed(Channel::kMetadata, 3);
  CHECK(pipeline.stage(1).Stats(false).steps() == 0);
  pipeline.transport(1).Release(Channel::kHidden);
  for (int i = 0; i < 3; ++i) REQUIRE(pipeline.results().Next().ok());
  CHECK(pipeline.stage(1).Stats(false).metadata_late_steps() == 0);
}

TEST_CASE("stats add up and can be reset") {
  ToyPipeline pipeline(2);
  pipeline.Start(1);
  auto sequences = RandomSequences(5, 21);
  uint64_t n_tokens = 0;
  for (const auto& s : sequences) n_tokens += s.prompt.size() + s.n_generate - 1;
  REQUIRE(ToyPlanner(1, &sequences, {}).Run(pipeline).ok());
  REQUIRE(pipeline.first().Drain().ok());
  const v1::StatsResponse stats = pipeline.first().Stats(true);
  CHECK(stats.tokens() == n_tokens);
  CHECK(stats.steps() > 0);
  CHECK(stats.slots_in_use() > 0);
  CHECK(std::abs(stats.compute_ms() + stats.wait_input_ms() + stats.wait_mask_ms() +
                 stats.wait_send_ms() + stats.idle_ms() - stats.elapsed_ms()) < 1e-6);
  CHECK(stats.hidden().sent_frames() == stats.steps());
  CHECK(stats.hidden().sent_bytes() == n_tokens * kToyHidden * sizeof(float));
  CHECK(stats.metadata().sent_frames() == stats.steps());
  CHECK(stats.tokens_channel().received_frames() > 0);

  const v1::StatsResponse after = pipeline.first().Stats(false);
  CHECK(after.steps() == 0);
  CHECK(after.hidden().sent_frames() == 0);
  CHECK(after.elapsed_ms() <= stats.elapsed_ms() + 1000);
}

TEST_CASE("a device's idle time does not decrease when a step's times become known") {
  ToyPipeline pipeline(2, ToyPipeline::Kind::kDeviceChannels);
  pipeline.Start(1);
  double idle_ms = 0;
  while (idle_ms < 50) idle_ms = pipeline.first().Stats(false).idle_ms();
  auto sequences = RandomSequences(1, 21);
  ToyPlanner planner(1, &sequences, {.max_in_flight = 1});
  while (const auto plan = planner.Next()) {
    REQUIRE(pipeline.first().Submit(*plan).ok());
    REQUIRE(pipeline.results().Next().ok());
    const double idle_now_ms = pipeline.first().Stats(false).idle_ms();
    CHECK(idle_now_ms >= idle_ms);
    idle_ms = idle_now_ms;
  }
}

TEST_CASE("a draining stage finishes its steps and refuses more") {
  ToyPipeline pipeline(1);
  pipeline.Start(1);
  auto sequences = RandomSequences(3, 2);
  ToyPlanner planner(1, &sequences, {});
  for (int i = 0; i < 4; ++i) REQUIRE(pipeline.first().Submit(*planner.Next()).ok());
  REQUIRE(pipeline.first().Drain().ok());
  CHECK(pipeline.first().Stats(false).steps() == 4);
  CHECK(absl::IsFailedPrecondition(pipeline.first().Submit(*planner.Next())));
  for (int i = 0; i < 4; ++i) CHECK(pipeline.results().Next().ok());
}

TEST_CASE("results before the listener attaches are kept; only one listener may attach") {
  ToyPipeline pipeline(1);
  pipeline.Start(1);
  pipeline.first().Detach(&pipeline.results());
  v1::StepPlan plan;
  plan.set_epoch(1);
  plan.set_step(1);
  REQUIRE(pipeline.first().Submit(plan).ok());
  REQUIRE(pipeline.first().Drain().ok());
  REQUIRE(pipeline.first().Attach(&pipeline.results()).ok());
  CHECK(pipeline.results().Next()->step() == 1);
  ResultQueue other;
  CHECK(absl::IsFailedPrecondition(pipeline.first().Attach(&other)));
  pipeline.first().Close(absl::CancelledError("enough"));
  CHECK(pipeline.results().AwaitClosed() == absl::CancelledError("enough"));
}

TEST_CASE("only the first stage accepts plans, and only up to a limit") {
  ToyPipeline pipeline(2);
  pipeline.Start(1);
  CHECK(absl::IsInvalidArgument(pipeline.stage(1).Submit({})));
  pipeline.transport(1).Hold(Channel::kHidden);
  absl::Status status;
  for (uint64_t step = 1; status.ok() && step < 2 * StageExecutor::kMaxPlansAhead; ++step) {
    v1::StepPlan plan;
    plan.set_epoch(1);
    plan.set_step(step);
    status = pipeline.first().Submit(plan);
  }
  CHECK(absl::IsResourceExhausted(status));
}

}  // namespace
}  // namespace stagecoach::worker
