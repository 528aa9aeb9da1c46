#include "worker/stage/testing/toy_pipeline.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <set>
#include <thread>

#include "common/status.h"
#include "kernels/reference/reference_ops.h"
#include "worker/stage/sample_params.h"
#include "worker/stage/testing/late_ops.h"
#include "worker/stage/testing/toy_device_channels.h"
#include "worker/transport/testing/memory_transport.h"

namespace stagecoach::worker {

using kernels::kBlockTokens;

StageLimits ToyLimits() {
  v1::LoadConfig config;
  config.set_max_batched_tokens(64);
  config.set_max_sequences(6);
  config.set_max_model_len(160);
  config.set_max_logprobs(5);
  return {.config = config, .vocab_size = kToyVocab, .n_kv_groups = 2};
}

std::shared_ptr<text::GrammarCache> ToyGrammars() {
  text::TokenTable table{.offsets = {0}, .eos_ids = {0}, .n_logits = kToyVocab};
  const auto add = [&](std::string_view bytes, int kind) {
    table.kinds += static_cast<char>(kind);
    table.bytes += bytes;
    table.offsets.push_back(static_cast<uint32_t>(table.bytes.size()));
  };
  add("<end>", SC_GRAMMAR_TOKEN_SPECIAL);
  add("<stop>", SC_GRAMMAR_TOKEN_SPECIAL);
  for (const char* token : {"{\"", "\":", "},", "true", "null", "ab", "12", "[[", "]]", "\",\""}) {
    add(token, SC_GRAMMAR_TOKEN_TEXT);
  }
  for (const char c : std::string_view("{}[]\":,.-+ 0123456789abcdefghijklmnopqrstu")) {
    add({&c, 1}, SC_GRAMMAR_TOKEN_TEXT);
  }
  return std::make_shared<text::GrammarCache>(text::GrammarVocabulary::Make(table).value(),
                                              64 << 20);
}

v1::SlotSampling Greedy() {
  v1::SlotSampling sampling;
  sampling.set_top_p(1);
  sampling.set_repetition_penalty(1);
  sampling.set_n_logprobs(-1);
  sampling.set_n_prompt_logprobs(-1);
  return sampling;
}

void ResultQueue::OnResult(v1::StepResult result) {
  MutexLock lock(mutex_);
  results_.push_back(std::move(result));
  changed_.notify_all();
}

void ResultQueue::OnFetched(v1::KvFetched fetched) {
  MutexLock lock(mutex_);
  fetched_.push_back(std::move(fetched));
  changed_.notify_all();
}

v1::KvFetched ResultQueue::NextFetched() {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !fetched_.empty(); });
  v1::KvFetched fetched = std::move(fetched_.front());
  fetched_.pop_front();
  return fetched;
}

void ResultQueue::OnClosed(const absl::Status& reason) {
  MutexLock lock(mutex_);
  closed_ = reason;
  changed_.notify_all();
}

absl::StatusOr<v1::StepResult> ResultQueue::Next() {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !closed_.ok() || !results_.empty();
  });
  if (results_.empty()) return closed_;
  v1::StepResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

absl::Status ResultQueue::AwaitClosed() {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !closed_.ok(); });
  return closed_;
}

ToyPipeline::ToyPipeline(int32_t n_stages, Kind kind, bool embeds, v1::HiddenDType hidden_dtype)
    : embeds_(embeds), hidden_dtype_(hidden_dtype), stages_(n_stages) {
  const bool on_device = kind == Kind::kDeviceChannels;
  auto transports = MakeMemoryTransports(n_stages);
  std::vector<std::shared_ptr<ToyDeviceTransport::Queue>> queues(n_stages);  // into each stage
  for (auto& queue : queues) queue = std::make_shared<ToyDeviceTransport::Queue>();
  for (int32_t i = 0; on_device && i < n_stages; ++i) {
    const bool is_first = i == 0, is_last = i + 1 == n_stages;
    transports[i] = std::make_unique<ToyDeviceTransport>(
        std::move(transports[i]),
        ToyDeviceTransport::Queues{.hidden_in = is_first ? nullptr : queues[i],
                                   .hidden_out = is_last ? nullptr : queues[i + 1],
                                   .tokens_in = is_first ? queues[0] : nullptr,
                                   .tokens_out = is_last ? queues[0] : nullptr},
        ToyLimits().config.max_sequences() * sizeof(int32_t));
  }
  for (int32_t i = 0; i < n_stages; ++i) {
    const int32_t first = kToyLayers * i / n_stages;
    stages_[i].ops =
        kind == Kind::kHost ? kernels::MakeReferenceOps() : MakeLateOps(&stages_[i].lost);
    stages_[i].model = std::make_unique<ToyModel>(
        ToyModelOptions{.first_layer = first,
                        .n_layers = kToyLayers * (i + 1) / n_stages - first,
                        .embeds = embeds,
                        .hidden_dtype = hidden_dtype});
    stages_[i].transport = std::make_unique<FaultTransport>(std::move(transports[i]));
  }
}

ToyPipeline::~ToyPipeline() {
  for (Stage& stage : stages_) stage.executor.reset();
}

void ToyPipeline::ShareKv(const std::string& store) {
  for (Stage& stage : stages_) {
    stage.executor.reset();
    stage.exchange.reset();
    if (store.empty()) continue;
    auto exchange =
        KvExchange::Start({.host_bytes = 1 << 20, .store = store}, stage.model->kv_parts(),
                          stage.model->state_parts(), stage.ops.get());
    REQUIRE(exchange.ok());
    stage.exchange = *std::move(exchange);
  }
}

void ToyPipeline::Start(uint64_t epoch) {
  const int32_t n_stages = static_cast<int32_t>(stages_.size());
  for (Stage& stage : stages_) stage.executor.reset();
  std::vector<std::thread> joins;
  std::vector<absl::Status> joined(n_stages);
  for (int32_t i = 0; i < n_stages; ++i) {
    joins.emplace_back([&, i] {
      joined[i] = stages_[i].transport->Join({.epoch = epoch, .stage = i, .n_stages = n_stages});
    });
  }
  for (auto& join : joins) join.join();
  StageLimits limits = ToyLimits();
  limits.pools_hidden = embeds_;
  limits.config.set_hidden_dtype(hidden_dtype_);
  for (int32_t i = 0; i < n_stages; ++i) {
    REQUIRE(joined[i].ok());
    Stage& stage = stages_[i];
    const std::vector<uint64_t> blocks(2, kBlocks);
    REQUIRE(stage.model->AllocateKv(blocks, {}).ok());
    stage.heard = std::make_unique<ResultQueue>();
    auto executor = StageExecutor::Start({.epoch = epoch,
                                          .stage = i,
                                          .n_stages = n_stages,
                                          .limits = limits,
                                          .kv_blocks = blocks,
                                          .grammars = ToyGrammars(),
                                          .exchange = stage.exchange},
                                         stage.model.get(), stage.ops.get(), stage.transport.get());
    REQUIRE(executor.ok());
    stage.executor = *std::move(executor);
    REQUIRE(stage.executor->Attach(stage.heard.get()).ok());
  }
}

ToyPlanner::ToyPlanner(uint64_t epoch, std::vector<ToySequence>* sequences, const Options& options)
    : epoch_(epoch), options_(options) {
  for (ToySequence& sequence : *sequences) waiting_.push_back(&sequence);
  for (int32_t s = 0; s < options.n_slots; ++s) free_slots_.push_back(s);
  free_blocks_.resize(2);
  for (uint64_t b = 0; b < ToyPipeline::kBlocks; ++b) {
    // The groups use different blocks for the same positions.
    free_blocks_[0].push_back(static_cast<uint32_t>(b));
    free_blocks_[1].push_back(static_cast<uint32_t>(ToyPipeline::kBlocks - 1 - b));
  }
}

void ToyPlanner::Admit(v1::StepPlan* plan) {
  while (!waiting_.empty() && !free_slots_.empty()) {
    Running running{.sequence = waiting_.front(), .blocks = {{}, {}}, .slot = free_slots_.back()};
    waiting_.pop_front();
    free_slots_.pop_back();
    v1::SlotRegistration* registration = plan->add_registrations();
    registration->set_slot(running.slot);
    const auto& prompt = running.sequence->prompt;
    registration->mutable_tokens()->Add(prompt.begin(), prompt.end());
    registration->set_n_prompt(static_cast<uint32_t>(prompt.size()));
    *registration->mutable_sampling() = running.sequence->sampling;
    running_.push_back(std::move(running));
  }
}

bool ToyPlanner::PlanSlot(Running& running, v1::StepPlan* plan) {
  const int32_t n_prompt = static_cast<int32_t>(running.sequence->prompt.size());
  v1::SlotDelta* slot = plan->add_slots();
  slot->set_slot(running.slot);
  slot->set_start(running.n_planned);
  const int32_t n =
      running.n_planned < n_prompt ? std::min(options_.chunk, n_prompt - running.n_planned) : 1;
  slot->set_n_tokens(n);
  running.n_planned += n;
  slot->set_sample(running.n_planned >= n_prompt);
  running.n_samples += slot->sample();
  for (size_t g = 0; g < 2; ++g) {
    v1::BlockIds* ids = slot->add_new_blocks();
    while (static_cast<int32_t>(running.blocks[g].size()) * kBlockTokens < running.n_planned) {
      const uint32_t block = free_blocks_[g].back();
      free_blocks_[g].pop_back();
      running.blocks[g].push_back(block);
      ids->add_ids(block);
    }
  }
  return running.n_samples == running.sequence->n_generate;
}

std::optional<v1::StepPlan> ToyPlanner::Next() {
  if (waiting_.empty() && running_.empty()) return std::nullopt;
  v1::StepPlan plan;
  plan.set_epoch(epoch_);
  plan.set_step(++step_);
  for (uint32_t slot : to_release_) {
    plan.add_release(slot);
    free_slots_.push_back(slot);
  }
  to_release_.clear();
  // Only now: within one step, one sequence's writes are not ordered after another's reads.
  for (const auto& blocks : to_free_) {
    for (size_t g = 0; g < 2; ++g) {
      free_blocks_[g].insert(free_blocks_[g].end(), blocks[g].begin(), blocks[g].end());
    }
  }
  to_free_.clear();
  Admit(&plan);
  auto& by_slot = in_flight_.emplace_back();
  for (Running& running : running_) {
    by_slot[running.slot] = running.sequence;
    if (!PlanSlot(running, &plan)) continue;
    to_release_.push_back(running.slot);
    to_free_.push_back(std::move(running.blocks));
    running.sequence = nullptr;
  }
  std::erase_if(running_, [](const Running& running) { return running.sequence == nullptr; });
  return plan;
}

absl::Status ToyPlanner::Take(const v1::StepResult& result) {
  for (const v1::SlotResult& slot : result.slots()) {
    ToySequence* sequence = in_flight_.front().at(slot.slot());
    sequence->prompt_logprobs.insert(sequence->prompt_logprobs.end(),
                                     slot.prompt_logprobs().begin(), slot.prompt_logprobs().end());
    if (!slot.sampled()) continue;
    sequence->generated.push_back(slot.token());
    sequence->values.assign(slot.values().begin(), slot.values().end());
    if (slot.has_logprobs()) sequence->logprobs.push_back(slot.logprobs());
  }
  in_flight_.pop_front();
  return absl::OkStatus();
}

absl::Status ToyPlanner::Run(ToyPipeline& pipeline) {
  for (uint64_t n_results = 0;;) {
    while (step_ - n_results < static_cast<uint64_t>(options_.max_in_flight)) {
      auto plan = Next();
      if (!plan.has_value()) break;
      SC_RETURN_IF_ERROR(pipeline.first().Submit(*std::move(plan)));
    }
    if (in_flight_.empty()) return absl::OkStatus();
    SC_ASSIGN_OR_RETURN(const v1::StepResult result, pipeline.results().Next());
    REQUIRE(result.step() == ++n_results);
    SC_RETURN_IF_ERROR(Take(result));
  }
}

namespace {

kernels::SampleRow RowFor(const ToySequence& sequence, const std::vector<int32_t>& history,
                          std::vector<kernels::TokenCount>* counts,
                          std::vector<int32_t>* forbidden) {
  const v1::SlotSampling& s = sequence.sampling;
  std::map<int32_t, int32_t> n_generated;
  for (size_t i = 0; i < history.size(); ++i) {
    n_generated[history[i]] += i >= sequence.prompt.size();
  }
  for (const auto& [id, n] : n_generated) counts->push_back({id, n});
  if (history.size() - sequence.prompt.size() < s.min_tokens()) {
    forbidden->assign(s.stop_ids().begin(), s.stop_ids().end());
  }
  return {.params = ToSampleParams(s),
          .seed = s.seed(),
          .position = history.size(),
          .counts = *counts,
          .forbidden = *forbidden,
          .bias_ids = {s.bias_ids().data(), static_cast<size_t>(s.bias_ids_size())},
          .bias_values = {s.bias_values().data(), static_cast<size_t>(s.bias_values_size())},
          .n_logprobs = s.n_logprobs()};
}

// The simple way: computes the mask from the beginning for every token.
std::vector<uint32_t> MaskAfter(const v1::SlotGrammar& grammar, std::span<const int32_t> generated,
                                const text::GrammarVocabulary& vocabulary) {
  const std::set<int32_t> ends(grammar.end_ids().begin(), grammar.end_ids().end());
  std::vector<uint32_t> mask(vocabulary.n_mask_words());
  const auto set = [&](int32_t id, bool value) {
    const uint32_t bit = uint32_t{1} << (id % 32);
    mask[id / 32] = value ? mask[id / 32] | bit : mask[id / 32] & ~bit;
  };
  const bool ended = std::any_of(generated.begin(), generated.end(),
                                 [&](int32_t token) { return ends.contains(token); });
  bool may_end = true;
  if (!ended) {
    const auto compiled =
        vocabulary.Compile({static_cast<text::GrammarKind>(grammar.kind()), grammar.source(),
                            grammar.any_whitespace(), grammar.begins_after()});
    REQUIRE(compiled.ok());
    const auto matcher = (*compiled)->NewMatcher().value();
    REQUIRE(matcher->Consume(generated).ok());
    may_end = matcher->Mask(mask).value();
  }
  for (int32_t id : ends) set(id, false);
  const bool others =
      std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
  for (int32_t id : ends) set(id, may_end && !(grammar.end_late() && others));
  return mask;
}

v1::Logprobs ToProto(const kernels::SampledToken& sampled, int32_t n) {
  v1::Logprobs out;
  out.set_chosen(sampled.logprob);
  for (int32_t i = 0; i < n; ++i) {
    out.add_top_ids(sampled.top_ids[i]);
    out.add_top(sampled.top_logprobs[i]);
  }
  return out;
}

}  // namespace

void GenerateAlone(ToySequence* sequence) {
  ToyModel model({});
  const auto ops = kernels::MakeReferenceOps();
  const auto grammars = ToyGrammars();
  REQUIRE(model.AllocateKv(std::vector<uint64_t>(2, 16), {}).ok());
  std::vector<int32_t> history = sequence->prompt;
  std::vector<kernels::NewBlock> blocks;
  for (int32_t b = 0; b < 16; ++b) {
    for (int32_t group : {0, 1}) blocks.push_back({group, /*slot=*/0, b, b});
  }
  const size_t end = sequence->prompt.size() + sequence->n_generate;
  for (size_t p = 0; p + 1 < end; ++p) {
    const int32_t position = static_cast<int32_t>(p);
    const kernels::StepSeq seq{.slot = 0, .position = position, .n_tokens = 1};
    model.Forward(
        {.seqs = {&seq, 1}, .token_ids = {&history[p], 1}, .new_blocks = blocks, .n_tokens = 1},
        model.hidden_buffer(), /*logit_rows=*/std::nullopt);
    const bool in_prompt = p + 1 < sequence->prompt.size();
    const int32_t n_logprobs =
        in_prompt ? sequence->sampling.n_prompt_logprobs() : sequence->sampling.n_logprobs();
    if (in_prompt && n_logprobs < 0) continue;
    std::vector<kernels::TokenCount> counts;
    std::vector<int32_t> forbidden;
    kernels::SampleRow row = RowFor(*sequence, history, &counts, &forbidden);
    std::vector<uint32_t> mask;
    if (!in_prompt && sequence->sampling.has_grammar()) {
      mask = MaskAfter(sequence->sampling.grammar(), sequence->generated, *grammars->vocabulary());
      row.allowed = mask;
      int32_t n_left = 0;
      for (int32_t id = 0; id < kToyVocab; ++id) {
        const bool stops = std::count(forbidden.begin(), forbidden.end(), id) > 0;
        n_left += (mask[id / 32] >> (id % 32) & 1) != 0 && !stops;
      }
      if (n_left == 0) row.forbidden = {};
    }
    if (in_prompt) row = {.given_token = history[p + 1], .n_logprobs = n_logprobs};
    std::vector<int32_t> top_ids(5);
    std::vector<float> top(5);
    kernels::SampledToken sampled{.top_ids = top_ids.data(), .top_logprobs = top.data()};
    const int32_t last_row = 0;
    ops->Sample({.logits = model.Logits(model.hidden_buffer(), {&last_row, 1}),
                 .vocab = kToyVocab,
                 .rows = {&row, 1},
                 .out = {&sampled, 1}});
    REQUIRE(ops->Synchronize().ok());
    if (n_logprobs >= 0) {
      (in_prompt ? sequence->prompt_logprobs : sequence->logprobs)
          .push_back(ToProto(sampled, n_logprobs));
    }
    if (in_prompt) continue;
    history.push_back(sampled.token);
    sequence->generated.push_back(sampled.token);
  }
}

}  // namespace stagecoach::worker
