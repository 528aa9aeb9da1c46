// Sequences that get numbers in place of tokens.
#include "worker/stage/pooler.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <random>
#include <string>
#include <vector>

#include "kernels/reference/reference_ops.h"
#include "worker/stage/testing/toy_pipeline.h"

namespace stagecoach::worker {
namespace {

using What = v1::SlotPooling;

std::vector<ToySequence> RandomSequences(int n) {
  std::mt19937 random(29);
  std::vector<ToySequence> sequences(n);
  for (ToySequence& sequence : sequences) {
    sequence.prompt.resize(1 + random() % 60);
    for (int32_t& token : sequence.prompt) token = static_cast<int32_t>(random() % kToyVocab);
    sequence.n_generate = 1;
    sequence.sampling = Greedy();
  }
  return sequences;
}

// Calls see(row) for each position of the sequence, which runs alone in one stage.
template <typename See>
void RunAlone(const ToySequence& sequence, ToyModel& model, const See& see) {
  REQUIRE(model.AllocateKv(std::vector<uint64_t>(2, 16), {}).ok());
  std::vector<kernels::NewBlock> blocks;
  for (int32_t b = 0; b < 16; ++b) {
    for (int32_t group : {0, 1}) blocks.push_back({group, /*slot=*/0, b, b});
  }
  for (size_t p = 0; p < sequence.prompt.size(); ++p) {
    const kernels::StepSeq seq{.slot = 0, .position = static_cast<int32_t>(p), .n_tokens = 1};
    model.Forward({.seqs = {&seq, 1},
                   .token_ids = {&sequence.prompt[p], 1},
                   .new_blocks = blocks,
                   .n_tokens = 1},
                  model.hidden_buffer(), /*logit_rows=*/std::nullopt);
    see(model.hidden_buffer());
  }
}

std::vector<float> VectorAlone(const ToySequence& sequence) {
  ToyModel model({.embeds = true});
  std::vector<double> sum(kToyHidden);
  std::vector<float> last(kToyHidden);
  RunAlone(sequence, model, [&](const float* row) {
    for (int32_t i = 0; i < kToyHidden; ++i) sum[i] += static_cast<double>(row[i]);
    last.assign(row, row + kToyHidden);
  });
  if (sequence.sampling.pooling().what() == What::LAST_HIDDEN) return last;
  std::vector<float> mean;
  for (const double value : sum) {
    mean.push_back(static_cast<float>(value / static_cast<double>(sequence.prompt.size())));
  }
  return mean;
}

TEST_CASE("stages, chunks and neighbours change no bit of a vector") {
  const int32_t n_stages = GENERATE(1, 2, 4);
  const auto kind = GENERATE(ToyPipeline::Kind::kHost, ToyPipeline::Kind::kRunsAhead,
                             ToyPipeline::Kind::kDeviceChannels);
  const int32_t chunk = GENERATE(1, 7, 16);
  std::vector<ToySequence> sequences = RandomSequences(12);
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].sampling.mutable_pooling()->set_what(i % 2 == 0 ? What::LAST_HIDDEN
                                                                 : What::MEAN_HIDDEN);
  }
  ToyPipeline pipeline(n_stages, kind, /*embeds=*/true);
  pipeline.Start(1);
  REQUIRE(ToyPlanner(1, &sequences, {.chunk = chunk}).Run(pipeline).ok());
  for (const ToySequence& sequence : sequences) CHECK(sequence.values == VectorAlone(sequence));
}

TEST_CASE("chosen logits come from the last position, beside neighbours that generate") {
  const int32_t n_stages = GENERATE(1, 2);
  const auto kind = GENERATE(ToyPipeline::Kind::kHost, ToyPipeline::Kind::kDeviceChannels);
  std::vector<ToySequence> sequences = RandomSequences(12);
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (i % 3 == 0) {
      sequences[i].n_generate = 5;
      sequences[i].sampling.set_n_prompt_logprobs(2);
      continue;
    }
    sequences[i].sampling.mutable_pooling()->add_logit_ids(3);
    sequences[i].sampling.mutable_pooling()->add_logit_ids(kToyVocab - 1);
  }
  ToyPipeline pipeline(n_stages, kind);
  pipeline.Start(1);
  REQUIRE(ToyPlanner(1, &sequences, {}).Run(pipeline).ok());
  for (const ToySequence& sequence : sequences) {
    if (!sequence.sampling.has_pooling()) {
      CHECK(sequence.values.empty());
      CHECK(sequence.generated.size() == 5);
      continue;
    }
    ToyModel model({});
    std::vector<float> expected;
    RunAlone(sequence, model, [&](const float* row) {
      const int32_t first = 0;
      const float* const logits = model.Logits(row, {&first, 1});
      expected = {logits[3], logits[kToyVocab - 1]};
    });
    CHECK(sequence.values == expected);
  }
}

// Why the pipeline ends the epoch.
std::string Refusal(bool embeds, v1::SlotPooling pooling, uint32_t start) {
  ToyPipeline pipeline(1, ToyPipeline::Kind::kHost, embeds);
  pipeline.Start(1);
  v1::StepPlan plan;
  plan.set_epoch(1);
  plan.set_step(1);
  v1::SlotRegistration& registration = *plan.add_registrations();
  for (int32_t i = 0; i < 20; ++i) registration.add_tokens(i);
  registration.set_n_prompt(20);
  *registration.mutable_sampling() = Greedy();
  if (pooling.what() != What::LOGITS || pooling.logit_ids_size() > 0) {
    *registration.mutable_sampling()->mutable_pooling() = std::move(pooling);
  }
  v1::SlotDelta& slot = *plan.add_slots();
  slot.set_start(start);
  slot.set_n_tokens(20 - start);
  slot.set_sample(true);
  for (int g = 0; g < 2; ++g) {
    v1::BlockIds& blocks = *slot.add_new_blocks();
    blocks.add_ids(0);
    blocks.add_ids(1);
  }
  REQUIRE(pipeline.first().Submit(std::move(plan)).ok());
  return std::string(pipeline.results().AwaitClosed().message());
}

TEST_CASE("a plan that the model cannot carry out is refused") {
  const auto has = [](const std::string& text, std::string_view part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  v1::SlotPooling mean, last, logits;
  mean.set_what(What::MEAN_HIDDEN);
  last.set_what(What::LAST_HIDDEN);
  has(Refusal(/*embeds=*/true, {}, 0), "asks an embedding model for tokens");
  has(Refusal(/*embeds=*/false, last, 0), "asks for hidden states");
  has(Refusal(/*embeds=*/true, mean, 16), "starts at position 16");
  logits.add_logit_ids(kToyVocab);
  has(Refusal(/*embeds=*/false, logits, 0), "outside the vocabulary");
  for (int32_t i = 0; i < kMostPooledLogits; ++i) logits.add_logit_ids(0);
  has(Refusal(/*embeds=*/false, logits, 0), "at most 8");
}

}  // namespace
}  // namespace stagecoach::worker
