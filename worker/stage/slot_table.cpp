#include "worker/stage/slot_table.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "worker/stage/sample_params.h"

namespace stagecoach::worker {

SlotTable::SlotTable(const StageLimits& limits, Needs needs)
    : limits_(limits),
      needs_(needs),
      token_stride_(static_cast<size_t>(limits.config.max_model_len()) + 1),
      slots_(limits.config.max_sequences()),
      n_blocks_(size_t(limits.config.max_sequences()) * limits.n_kv_groups) {
  // The rows of a step need at most this many new blocks, because each sequence may add a partial
  // block. A cached prefix at a sequence's start may need more.
  new_blocks_.reserve(
      size_t(limits.n_kv_groups) *
      (limits.config.max_batched_tokens() / kernels::kBlockTokens + limits.config.max_sequences()));
  // A page is backed by memory only when a sequence reaches it.
  if (needs_.tokens) {
    tokens_ = MapPages(limits.config.max_sequences() * token_stride_ * sizeof(int32_t));
    if (tokens_ == nullptr) throw std::bad_alloc();
  }
  if (needs_.sampling) sampling_.resize(limits.config.max_sequences());
}

void SlotTable::Apply(const StepMetaView& meta, std::span<v1::SlotSampling> sampling) {
  SC_CHECK(!needs_.sampling || sampling.size() == meta.registrations.size());
  for (uint32_t slot : meta.releases) Release(slot);
  for (size_t i = 0; i < meta.registrations.size(); ++i) {
    Register(meta, meta.registrations[i], needs_.sampling ? &sampling[i] : nullptr);
  }
  new_blocks_.clear();
  for (size_t i = 0; i < meta.n_slots(); ++i) {
    const uint32_t slot = meta.slots[i];
    for (size_t g = 0; g < meta.n_groups; ++g) {
      int32_t& n = n_blocks(slot, g);
      for (const uint32_t block : meta.new_blocks(i, g)) {
        new_blocks_.push_back({.group = static_cast<int32_t>(g),
                               .slot = static_cast<int32_t>(slot),
                               .index = n++,
                               .block = static_cast<int32_t>(block)});
      }
    }
  }
}

void SlotTable::Release(uint32_t slot) {
  slots_[slot].in_use = false;
  n_in_use_.fetch_sub(1, std::memory_order_relaxed);
}

void SlotTable::Register(const StepMetaView& meta, const SlotRecord& record,
                         v1::SlotSampling* sampling) {
  Slot& slot = slots_[record.slot];
  if (!slot.in_use) n_in_use_.fetch_add(1, std::memory_order_relaxed);
  slot.in_use = true;
  slot.registered_step = meta.step;
  for (int32_t g = 0; g < limits_.n_kv_groups; ++g) n_blocks(record.slot, g) = 0;

  const auto tokens = meta.tokens(record);
  slot.n_tokens = static_cast<int32_t>(tokens.size());
  if (needs_.tokens) std::copy(tokens.begin(), tokens.end(), token_row(record.slot));
  if (sampling == nullptr) return;

  SlotSamplingState& state = sampling_[record.slot];
  state.sampling = std::move(*sampling);
  // GrammarMasks keeps the grammar's source, which may be large.
  if (state.sampling.has_grammar()) state.sampling.mutable_grammar()->Clear();
  state.params = ToSampleParams(state.sampling);
  state.n_prompt = record.n_prompt;
  state.counts.clear();
  if (!state.has_penalties()) return;

  // In bulk, because inserting a long prompt token by token would take quadratic time.
  std::vector<kernels::TokenCount>& counts = state.counts;
  for (size_t i = 0; i < tokens.size(); ++i) {
    counts.push_back({tokens[i], i < record.n_prompt ? 0 : 1});
  }
  std::sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  size_t n_kept = 0;
  for (const kernels::TokenCount& count : counts) {
    if (n_kept > 0 && counts[n_kept - 1].id == count.id) {
      counts[n_kept - 1].n_generated += count.n_generated;
    } else {
      counts[n_kept++] = count;
    }
  }
  counts.resize(n_kept);
}

absl::StatusOr<bool> SlotTable::AcceptToken(uint64_t step, uint32_t id, int32_t token) {
  if (id >= slots_.size() || token < 0 || token >= limits_.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step, " sampled token ", token, " for slot ", id));
  }
  Slot& slot = slots_[id];
  if (!slot.in_use || slot.registered_step > step) return false;
  if (static_cast<size_t>(slot.n_tokens) == token_stride_) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step, " sampled a token for slot ", id, ", which is full"));
  }
  if (needs_.tokens) token_row(id)[slot.n_tokens] = token;
  ++slot.n_tokens;
  if (!needs_.sampling || !sampling_[id].has_penalties()) return true;
  auto& counts = sampling_[id].counts;
  const auto at =
      std::lower_bound(counts.begin(), counts.end(), token,
                       [](const kernels::TokenCount& count, int32_t id) { return count.id < id; });
  if (at != counts.end() && at->id == token) {
    ++at->n_generated;
  } else {
    counts.insert(at, {token, 1});
  }
  return true;
}

}  // namespace stagecoach::worker
