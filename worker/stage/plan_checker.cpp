#include "worker/stage/plan_checker.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/kv_beside.h"
#include "common/kv_block.h"
#include "common/status.h"
#include "common/text/grammar.h"
#include "worker/stage/sample_params.h"
#include "worker/stage/sampler.h"

namespace stagecoach::worker {
namespace {

absl::Status Invalid(uint32_t slot, const absl::AlphaNum& what) {
  return absl::InvalidArgumentError(absl::StrCat("slot ", slot, ": ", what));
}

}  // namespace

PlanChecker::PlanChecker(const StageLimits& limits, uint64_t epoch, std::vector<uint64_t> kv_blocks)
    : limits_(limits),
      epoch_(epoch),
      kv_blocks_(std::move(kv_blocks)),
      slots_(static_cast<size_t>(limits.config.max_sequences())) {
  for (Slot& slot : slots_) slot.n_blocks.assign(limits_.n_kv_groups, 0);
}

absl::Status PlanChecker::Check(const StepMetaView& meta,
                                std::span<const v1::SlotSampling> sampling) {
  if (meta.epoch != epoch_) {
    return absl::FailedPreconditionError(absl::StrCat("step ", meta.step, " belongs to epoch ",
                                                      meta.epoch, ", the pipeline is in epoch ",
                                                      epoch_));
  }
  if (meta.step != step_ + 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", meta.step, " came after step ", step_));
  }
  step_ = meta.step;
  SC_CHECK(sampling.empty() || sampling.size() == meta.registrations.size());
  const auto check_all = [&] {
    if (meta.n_groups != static_cast<uint32_t>(limits_.n_kv_groups)) {
      return absl::InvalidArgumentError(
          absl::StrCat(meta.n_groups, " KV groups; the model has ", limits_.n_kv_groups));
    }
    if (meta.n_rows > static_cast<uint32_t>(limits_.config.max_batched_tokens())) {
      return absl::InvalidArgumentError(absl::StrCat(
          meta.n_rows, " tokens; the stage was loaded for ", limits_.config.max_batched_tokens()));
    }
    SC_RETURN_IF_ERROR(CheckKvCopies(meta));
    for (uint32_t slot : meta.releases) SC_RETURN_IF_ERROR(CheckRelease(slot));
    for (size_t i = 0; i < meta.registrations.size(); ++i) {
      const SlotRecord& record = meta.registrations[i];
      SC_RETURN_IF_ERROR(CheckRegistration(meta, record));
      if (!sampling.empty()) SC_RETURN_IF_ERROR(CheckSampling(record.slot, sampling[i]));
    }
    for (size_t i = 0; i < meta.n_slots(); ++i) SC_RETURN_IF_ERROR(CheckSlot(meta, i));
    return absl::OkStatus();
  };
  const absl::Status status = check_all();
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("step ", meta.step, ": ", status.message()));
}

absl::Status PlanChecker::CheckKvCopies(const StepMetaView& meta) const {
  const auto check = [&](std::span<const uint32_t> blocks, bool may_lack) {
    for (size_t g = 0; g < blocks.size(); ++g) {
      if (blocks[g] < kv_blocks_[g] || (may_lack && blocks[g] == kNoKvBlock)) continue;
      return absl::InvalidArgumentError(absl::StrCat("a copy of block ", blocks[g], " of KV group ",
                                                     g, ", which has ", kv_blocks_[g]));
    }
    return absl::OkStatus();
  };
  const auto check_state = [this](uint32_t state) {
    if (state < limits_.n_states || state == kNoKvBlock) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a copy of recurrent state ", state, "; there are ", limits_.n_states));
  };
  const auto n_beside = std::ranges::count_if(
      meta.restores, [](const KvRestoreRecord& restore) { return restore.beside != 0; });
  if (n_beside > kMostBlocksBeside) {
    return absl::InvalidArgumentError(absl::StrCat(
        n_beside, " blocks are restored beside its rows; ", kMostBlocksBeside, " are possible"));
  }
  for (size_t i = 0; i < meta.saves.size(); ++i) {
    const uint32_t state = meta.saved_state(i);
    SC_RETURN_IF_ERROR(check_state(state));
    SC_RETURN_IF_ERROR(check(meta.saved_blocks(i), /*may_lack=*/state != kNoKvBlock));
  }
  for (size_t i = 0; i < meta.restores.size(); ++i) {
    SC_RETURN_IF_ERROR(check_state(meta.restored_state(i)));
    SC_RETURN_IF_ERROR(check(meta.restored_blocks(i), /*may_lack=*/true));
  }
  return absl::OkStatus();
}

absl::Status PlanChecker::CheckRelease(uint32_t slot) {
  if (slot >= slots_.size()) return Invalid(slot, "there is no such slot");
  if (!slots_[slot].registered) {
    return absl::FailedPreconditionError(absl::StrCat("slot ", slot, ": released, but not in use"));
  }
  slots_[slot].registered = false;
  return absl::OkStatus();
}

absl::Status PlanChecker::CheckRegistration(const StepMetaView& meta, const SlotRecord& r) {
  if (r.slot >= slots_.size()) {
    return Invalid(r.slot, absl::StrCat("there are ", slots_.size(), " slots"));
  }
  if (r.n_tokens == 0 || r.n_tokens > static_cast<uint32_t>(limits_.config.max_model_len())) {
    return Invalid(r.slot, absl::StrCat(r.n_tokens, " tokens registered; 1 to ",
                                        limits_.config.max_model_len(), " are possible"));
  }
  if (r.n_prompt == 0 || r.n_prompt > r.n_tokens) {
    return Invalid(r.slot, absl::StrCat("a prompt of ", r.n_prompt, " of ", r.n_tokens, " tokens"));
  }
  for (int32_t id : meta.tokens(r)) {
    if (id < 0 || id >= limits_.vocab_size) {
      return Invalid(r.slot, absl::StrCat("token id ", id, " is outside the vocabulary of ",
                                          limits_.vocab_size));
    }
  }
  SC_RETURN_IF_ERROR(CheckState(r.slot, r.from_state));
  Slot& slot = slots_[r.slot];
  slot.has_state = r.from_state > 0;
  slot.registered = true;
  slot.n_computed = 0;
  slot.n_tokens = r.n_tokens;
  std::fill(slot.n_blocks.begin(), slot.n_blocks.end(), 0);
  return absl::OkStatus();
}

absl::Status PlanChecker::CheckState(uint32_t slot, uint32_t number) const {
  if (number <= limits_.n_states) return absl::OkStatus();
  return Invalid(slot, absl::StrCat("a copy of recurrent state ", number - 1, "; there are ",
                                    limits_.n_states));
}

absl::Status PlanChecker::CheckSampling(uint32_t slot, const v1::SlotSampling& sampling) {
  const kernels::SampleParams params = ToSampleParams(sampling);
  bool all_finite = true;
  kernels::SampleParams::ForEach(params, [&all_finite](const char*, auto value) {
    all_finite = all_finite && std::isfinite(static_cast<double>(value));
  });
  if (!all_finite) return Invalid(slot, "a sampling value is not finite");
  if (params.temperature < 0) return Invalid(slot, "a negative temperature");
  if (sampling.n_logprobs() > limits_.config.max_logprobs() ||
      sampling.n_prompt_logprobs() > limits_.config.max_logprobs()) {
    return Invalid(slot,
                   absl::StrCat("more than ", limits_.config.max_logprobs(), " log-probabilities"));
  }
  if (sampling.bias_ids_size() != sampling.bias_values_size()) {
    return Invalid(slot, absl::StrCat(sampling.bias_ids_size(), " bias ids, but ",
                                      sampling.bias_values_size(), " bias values"));
  }
  SC_RETURN_IF_ERROR(CheckPooling(slot, sampling));
  return sampling.has_grammar() ? CheckGrammar(slot, sampling.grammar()) : absl::OkStatus();
}

absl::Status PlanChecker::CheckPooling(uint32_t slot, const v1::SlotSampling& sampling) {
  const v1::SlotPooling& pooling = sampling.pooling();
  const bool wants_hidden = sampling.has_pooling() && pooling.what() != v1::SlotPooling::LOGITS;
  if (wants_hidden != limits_.pools_hidden) {
    return Invalid(slot, limits_.pools_hidden ? "asks an embedding model for tokens"
                                              : "asks for hidden states of a model with logits");
  }
  if (pooling.logit_ids_size() > kMostPooledLogits) {
    return Invalid(slot, absl::StrCat(pooling.logit_ids_size(), " logits; at most ",
                                      kMostPooledLogits, " are possible"));
  }
  for (const int32_t id : pooling.logit_ids()) {
    if (id < 0 || id >= limits_.vocab_size) {
      return Invalid(slot, absl::StrCat("logit id ", id, " is outside the vocabulary of ",
                                        limits_.vocab_size));
    }
  }
  slots_[slot].begins_at_0 = pooling.what() == v1::SlotPooling::MEAN_HIDDEN;
  return absl::OkStatus();
}

absl::Status PlanChecker::CheckGrammar(uint32_t slot, const v1::SlotGrammar& grammar) const {
  if (!v1::GrammarKind_IsValid(grammar.kind())) return Invalid(slot, "an unknown kind of grammar");
  if (grammar.source().size() + grammar.begins_after().size() > text::kMaxGrammarBytes) {
    return Invalid(slot, absl::StrCat("a grammar of ", grammar.source().size(), " bytes; at most ",
                                      text::kMaxGrammarBytes, " are possible"));
  }
  if (grammar.end_ids().empty()) return Invalid(slot, "a grammar without a token that ends it");
  for (int32_t id : grammar.end_ids()) {
    if (id < 0 || id >= limits_.vocab_size) {
      return Invalid(
          slot, absl::StrCat("end id ", id, " is outside the vocabulary of ", limits_.vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::Status PlanChecker::CheckSlot(const StepMetaView& meta, size_t i) {
  const uint32_t id = meta.slots[i];
  if (id >= slots_.size()) return Invalid(id, absl::StrCat("there are ", slots_.size(), " slots"));
  Slot& slot = slots_[id];
  if (!slot.registered) {
    return absl::FailedPreconditionError(absl::StrCat("slot ", id, ": not registered"));
  }
  SC_RETURN_IF_ERROR(CheckState(id, meta.save_state(i)));
  if (meta.save_state(i) > 0 &&
      SavedPosition(meta.starts[i], meta.starts[i] + meta.n_tokens[i], meta.samples(i)) == 0) {
    return Invalid(id, "saves a recurrent state where no block ends");
  }
  if (limits_.n_states > 0) {
    if (id >= limits_.n_states) return Invalid(id, "it has no recurrent state");
    const bool is_first = slot.n_computed == 0;
    if (is_first && slot.has_state != (meta.starts[i] > 0)) {
      return Invalid(id, absl::StrCat("begins at position ", meta.starts[i],
                                      slot.has_state ? " with" : " without", " a recurrent state"));
    }
  }
  if (slot.seen_in_step == meta.step) return Invalid(id, "twice in one step");
  slot.seen_in_step = meta.step;
  // A sequence may begin behind blocks that others have filled, or that it filled in an earlier
  // epoch, the last of them in part.
  if (slot.n_computed == 0 && meta.starts[i] < slot.n_tokens && !slot.begins_at_0) {
    slot.n_computed = meta.starts[i];
  }
  if (meta.starts[i] != slot.n_computed) {
    return Invalid(
        id, absl::StrCat("starts at position ", meta.starts[i], "; the next is ", slot.n_computed));
  }
  // The start is at most max_model_len, n_tokens max_batched_tokens: no overflow.
  const uint32_t end = meta.starts[i] + meta.n_tokens[i];
  if (end > static_cast<uint32_t>(limits_.config.max_model_len())) {
    return Invalid(id, absl::StrCat("reaches position ", end - 1, "; sequences end at ",
                                    limits_.config.max_model_len(), " tokens"));
  }
  if (end > slot.n_tokens) {
    return Invalid(id, absl::StrCat("computes position ", end - 1, ", but only ", slot.n_tokens,
                                    " tokens are registered or sampled before this step"));
  }
  if (meta.samples(i)) {
    if (end != slot.n_tokens) {
      return Invalid(id, absl::StrCat("samples after position ", end - 1, ", but has ",
                                      slot.n_tokens, " tokens already"));
    }
    ++slot.n_tokens;
  }
  slot.n_computed = end;
  return CheckBlocks(meta, i, slot);
}

absl::Status PlanChecker::CheckBlocks(const StepMetaView& meta, size_t i, Slot& slot) {
  const uint32_t id = meta.slots[i];
  for (size_t g = 0; g < meta.n_groups; ++g) {
    const auto new_blocks = meta.new_blocks(i, g);
    for (uint32_t block : new_blocks) {
      if (block >= kv_blocks_[g]) {
        return Invalid(
            id, absl::StrCat("block ", block, " of KV group ", g, ", which has ", kv_blocks_[g]));
      }
    }
    const uint64_t n_blocks = slot.n_blocks[g] + new_blocks.size();
    if (n_blocks > static_cast<uint64_t>(limits_.max_blocks())) {
      return Invalid(id, absl::StrCat(n_blocks, " blocks in KV group ", g, "; a sequence has ",
                                      limits_.max_blocks(), " at most"));
    }
    slot.n_blocks[g] = static_cast<uint32_t>(n_blocks);
    if (n_blocks * kernels::kBlockTokens < slot.n_computed) {
      return Invalid(id, absl::StrCat(n_blocks, " blocks in KV group ", g, " do not hold ",
                                      slot.n_computed, " tokens"));
    }
  }
  return absl::OkStatus();
}

}  // namespace stagecoach::worker
