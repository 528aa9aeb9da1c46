#include "router/scheduler/testing/strict_stage.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/kv_block.h"

namespace stagecoach::router {
namespace {

// Steele et al. 2014, "Fast splittable pseudorandom number generators" (the finalizer).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t TokenSource::Extend(uint64_t history_hash, int32_t token) {
  return Mix(history_hash + 0x9e3779b97f4a7c15 + static_cast<uint64_t>(token));
}

int32_t TokenSource::Next(uint64_t history_hash, uint32_t position, uint32_t n_prompt,
                          const v1::SlotSampling& sampling) {
  const bool stop_forbidden = position - n_prompt < sampling.min_tokens();
  const auto& stop_ids = sampling.stop_ids();
  for (uint64_t attempt = 0;; ++attempt) {
    const uint64_t bits =
        Mix(history_hash ^ Mix(sampling.seed() + attempt) ^ (uint64_t{position} << 32));
    const auto token = static_cast<int32_t>(bits % kVocabularySize);
    const bool stops = std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end();
    if (!stops || !stop_forbidden) return token;
  }
}

std::vector<int32_t> TokensAlone(const SequenceRequest& request, int32_t max_model_len) {
  uint64_t history_hash = TokenSource::kEmptyHistory;
  for (int32_t token : *request.prompt) history_hash = TokenSource::Extend(history_hash, token);
  const auto n_prompt = static_cast<uint32_t>(request.prompt->size());
  const auto& stop_ids = request.sampling.stop_ids();
  std::vector<int32_t> generated;
  while (generated.size() < request.max_tokens &&
         n_prompt + generated.size() < static_cast<size_t>(max_model_len)) {
    const auto n_generated = static_cast<uint32_t>(generated.size());
    const int32_t token =
        TokenSource::Next(history_hash, n_prompt + n_generated, n_prompt, request.sampling);
    generated.push_back(token);
    history_hash = TokenSource::Extend(history_hash, token);
    if (n_generated >= request.sampling.min_tokens() &&
        std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end()) {
      break;
    }
  }
  return generated;
}

namespace {

std::vector<float> PooledAlone(const v1::SlotSampling& sampling, uint64_t history_hash,
                               uint32_t n_prompt) {
  std::vector<float> values;
  if (!sampling.has_pooling()) return values;
  for (const int32_t id : sampling.pooling().logit_ids()) {
    values.push_back(static_cast<float>((history_hash + static_cast<uint64_t>(id)) % 16));
  }
  if (sampling.pooling().what() == v1::SlotPooling::LOGITS) return values;
  for (int32_t i = 0; i < kPooledSize; ++i) {
    values.push_back(static_cast<float>((history_hash >> (8 * i)) % 256 + 1));
  }
  if (IsMean(sampling)) values[0] = static_cast<float>(n_prompt);
  return values;
}

}  // namespace

std::vector<float> PooledAlone(const SequenceRequest& request) {
  uint64_t history_hash = TokenSource::kEmptyHistory;
  for (int32_t token : *request.prompt) history_hash = TokenSource::Extend(history_hash, token);
  return PooledAlone(request.sampling, history_hash, static_cast<uint32_t>(request.prompt->size()));
}

StrictStage::StrictStage(const SchedulerConfig& config, FakeKvStore* store)
    : config_(config),
      epoch_(config.epoch),
      slots_(config.max_sequences),
      states_(config.n_states),
      store_(store) {
  for (const auto& group : config.kv_groups) blocks_.emplace_back(group.n_blocks);
}

void StrictStage::BeginEpoch(uint64_t epoch, bool kv_kept) {
  epoch_ = epoch;
  step_ = 0;
  kv_kept_ = kv_kept;
  for (Slot& slot : slots_) slot = {};
  held_.clear();
  beside_.clear();
  // What steps without a result have done to the states of slots is not known.
  std::fill_n(states_.begin(), std::min(states_.size(), slots_.size()), 0);
  if (kv_kept) return;
  std::fill(states_.begin(), states_.end(), 0);
  for (std::vector<Block>& group : blocks_) group.assign(group.size(), {});
}

void StrictStage::Fail(const std::string& what) {
  errors_.push_back(absl::StrCat("step ", step_, ": ", what));
}

v1::StepResult StrictStage::Apply(const v1::StepPlan& plan) {
  if (plan.epoch() != epoch_) Fail(absl::StrCat("epoch ", plan.epoch()));
  if (plan.step() != step_ + 1) Fail(absl::StrCat("followed by step ", plan.step()));
  step_ = plan.step();
  for (const auto& [restore, stored] : std::exchange(beside_, {})) Fill(restore, stored);
  for (const auto& save : plan.saves()) Save(save);
  for (const auto& restore : plan.restores()) Restore(restore);
  for (const uint64_t fetch : plan.forgotten_fetches()) {
    if (held_.erase(fetch) == 0) Fail(absl::StrCat("forgets fetch ", fetch, ", which is not held"));
  }
  for (uint32_t slot : plan.release()) {
    if (slot >= slots_.size() || slots_[slot].owner == 0) {
      Fail(absl::StrCat("releases slot ", slot, ", which is not registered"));
      continue;
    }
    slots_[slot] = {};
  }
  for (const auto& registration : plan.registrations()) Register(registration);
  v1::StepResult result;
  result.set_epoch(plan.epoch());
  result.set_step(plan.step());
  if (plan.slots().empty() && plan.release().empty() && plan.saves().empty() &&
      plan.forgotten_fetches().empty()) {
    Fail("is empty");
  }
  saved_.clear();
  uint32_t n_tokens = 0;
  std::set<uint32_t> seen;
  for (const auto& delta : plan.slots()) {
    n_tokens += delta.n_tokens();
    if (!seen.insert(delta.slot()).second) Fail(absl::StrCat("slot ", delta.slot(), " twice"));
    if (!CheckDelta(delta)) return result;
    TakeBlocks(delta);
  }
  if (n_tokens > static_cast<uint32_t>(config_.max_batched_tokens)) {
    Fail(absl::StrCat(n_tokens, " tokens"));
  }
  for (const auto& delta : plan.slots()) MoveState(delta);
  for (const auto& delta : plan.slots()) SaveState(delta);
  for (const auto& delta : plan.slots()) Write(delta);
  // After all writes: rows of one step run together.
  for (const auto& delta : plan.slots()) CheckReads(delta);
  for (const auto& delta : plan.slots()) Sample(delta, result);
  return result;
}

int StrictStage::NNumbers() const {
  return static_cast<int>(blocks_.size()) + (config_.is_recurrent ? 1 : 0);
}

uint64_t* StrictStage::SavedStateOf(const google::protobuf::RepeatedField<uint32_t>& numbers) {
  if (!config_.is_recurrent || numbers[NNumbers() - 1] == PrefixTree::kNoBlock) return nullptr;
  const size_t number = numbers[NNumbers() - 1];
  if (number >= slots_.size() && number < states_.size()) return &states_[number];
  Fail(absl::StrCat("copies state ", number, ", which is no saved one"));
  return nullptr;
}

void StrictStage::Save(const v1::KvSave& save) {
  if (store_ == nullptr || save.key().size() != sizeof(BlockKey) ||
      save.tokens_size() != static_cast<int>(kBlockTokens) || save.blocks_size() != NNumbers()) {
    return Fail("has a malformed save, or no store");
  }
  FakeStoredBlock& stored = (*store_)[save.key()];
  const std::vector<int32_t> tokens(save.tokens().begin(), save.tokens().end());
  if (stored.tokens.empty()) stored.tokens = tokens;
  if (stored.tokens != tokens) Fail("saves other tokens under a key of the store");
  if (const uint64_t* const state = SavedStateOf(save.blocks())) {
    if (*state == 0) Fail("saves a state that holds nothing");
    if (stored.state.value_or(*state) != *state) Fail("saves another state under a key");
    stored.state = *state;
  } else {
    SaveBlocks(save, stored);
  }
}

void StrictStage::SaveBlocks(const v1::KvSave& save, FakeStoredBlock& stored) {
  std::vector<std::array<uint64_t, kBlockTokens>> hashes;
  for (size_t g = 0; g < blocks_.size(); ++g) {
    const uint32_t id = save.blocks(static_cast<int>(g));
    if (id >= blocks_[g].size()) return Fail(absl::StrCat("saves block ", id, " of group ", g));
    const Block& block = blocks_[g][id];
    for (uint32_t i = 1; i < kBlockTokens; ++i) {
      if (block.hashes[i] != TokenSource::Extend(block.hashes[i - 1], stored.tokens[i])) {
        return Fail(absl::StrCat("saves block ", id, " of group ", g, ", which lacks its tokens"));
      }
    }
    stored.index = block.index;
    hashes.push_back(block.hashes);
  }
  if (stored.hashes.empty()) stored.hashes = hashes;
  if (stored.hashes != hashes) Fail("saves other contents under a key of the store");
}

v1::KvFetched StrictStage::Fetch(const v1::KvFetch& fetch) {
  v1::KvFetched fetched;
  fetched.set_id(fetch.id());
  std::vector<FakeStoredBlock>& held = held_[fetch.id()];
  if (!held.empty() || fetch.tokens_size() != static_cast<int>(kBlockTokens) * fetch.keys_size()) {
    Fail(absl::StrCat("comes with the malformed or repeated fetch ", fetch.id()));
  }
  for (int i = 0; store_ != nullptr && i < fetch.keys_size(); ++i) {
    const auto found = store_->find(fetch.keys(i));
    if (found == store_->end() || found->second.hashes.empty()) break;
    if (!std::equal(found->second.tokens.begin(), found->second.tokens.end(),
                    fetch.tokens().begin() + i * static_cast<int>(kBlockTokens))) {
      Fail("comes with a fetch of other tokens than the store has under the key");
    }
    held.push_back(found->second);
  }
  while (config_.is_recurrent && !held.empty() && !held.back().state) held.pop_back();
  fetched.set_n_blocks(static_cast<uint32_t>(held.size()));
  return fetched;
}

void StrictStage::Restore(const v1::KvRestore& restore) {
  const auto held = held_.find(restore.fetch());
  if (held == held_.end() || restore.index() >= held->second.size() ||
      restore.blocks_size() != NNumbers()) {
    return Fail(absl::StrCat("restores block ", restore.index(), " of fetch ", restore.fetch(),
                             ", which is not held"));
  }
  const FakeStoredBlock& stored = held->second[restore.index()];
  if (!restore.beside()) return Fill(restore, stored);
  beside_.emplace_back(restore, stored);
  if (std::cmp_greater(beside_.size(), config_.kv_blocks_beside)) Fail("restores too much beside");
}

void StrictStage::Fill(const v1::KvRestore& restore, const FakeStoredBlock& stored) {
  for (size_t g = 0; g < blocks_.size(); ++g) {
    const uint32_t id = restore.blocks(static_cast<int>(g));
    if (id == PrefixTree::kNoBlock) continue;
    if (id >= blocks_[g].size()) return Fail(absl::StrCat("restores block ", id));
    blocks_[g][id] = {.index = stored.index, .n_filled = kBlockTokens, .hashes = stored.hashes[g]};
  }
  if (uint64_t* const state = SavedStateOf(restore.blocks())) {
    if (!stored.state) return Fail("restores a state that the store does not have");
    *state = *stored.state;
  }
}

void StrictStage::Register(const v1::SlotRegistration& registration) {
  const uint32_t index = registration.slot();
  if (index >= slots_.size() || slots_[index].owner != 0) {
    Fail(absl::StrCat("registers slot ", index, ", which does not exist or is in use"));
    return;
  }
  Slot& slot = slots_[index];
  slot.owner = ++n_registrations_;
  for (int32_t token : registration.tokens()) AppendToken(slot, token);
  slot.n_registered = static_cast<uint32_t>(slot.tokens.size());
  slot.n_prompt = registration.n_prompt();
  slot.sampling = registration.sampling();
  slot.tables.resize(blocks_.size());
  BeginState(registration);
  if (slot.n_prompt == 0 || slot.n_prompt > slot.n_registered ||
      slot.n_registered >= static_cast<uint32_t>(config_.max_model_len)) {
    Fail(absl::StrCat("registers ", slot.n_registered, " tokens, prompt ", slot.n_prompt));
  }
}

void StrictStage::BeginState(const v1::SlotRegistration& registration) {
  const uint32_t from = registration.from_state();
  if (!config_.is_recurrent) {
    if (from > 0) Fail("begins with a state, but the model has none");
    return;
  }
  const bool is_saved = from > slots_.size() && from <= states_.size();
  if (from > 0 && !is_saved) return Fail(absl::StrCat("begins with state ", from));
  states_[registration.slot()] = from > 0 ? states_[from - 1] : TokenSource::kEmptyHistory;
}

void StrictStage::MoveState(const v1::SlotDelta& delta) {
  if (!config_.is_recurrent) return;
  const Slot& slot = slots_[delta.slot()];
  uint64_t& state = states_[delta.slot()];
  const uint64_t before =
      delta.start() == 0 ? TokenSource::kEmptyHistory : slot.hashes[delta.start() - 1];
  if (state != before) {
    Fail(
        absl::StrCat("slot ", delta.slot(), " at ", delta.start(), " has a state of other tokens"));
  }
  state = slot.hashes[delta.start() + delta.n_tokens() - 1];
}

void StrictStage::SaveState(const v1::SlotDelta& delta) {
  const uint32_t to = delta.save_state();
  if (to == 0) return;
  const uint32_t position =
      SavedPosition(delta.start(), delta.start() + delta.n_tokens(), delta.sample());
  if (position == 0 || to <= slots_.size() || to > states_.size()) {
    return Fail(absl::StrCat("slot ", delta.slot(), " saves state ", to, " at ", position));
  }
  // A stage computes the sequences of a step side by side.
  if (!saved_.insert(to).second) Fail(absl::StrCat("saves state ", to, " twice"));
  states_[to - 1] = slots_[delta.slot()].hashes[position - 1];
}

void StrictStage::AppendToken(Slot& slot, int32_t token) {
  slot.tokens.push_back(token);
  const uint64_t before = slot.hashes.empty() ? TokenSource::kEmptyHistory : slot.hashes.back();
  slot.hashes.push_back(TokenSource::Extend(before, token));
}

bool StrictStage::CheckDelta(const v1::SlotDelta& delta) {
  const size_t n_errors = errors_.size();
  const std::string who = absl::StrCat("slot ", delta.slot(), " ");
  if (delta.slot() >= slots_.size() || slots_[delta.slot()].owner == 0) {
    Fail(who + "is not registered");
    return false;
  }
  const Slot& slot = slots_[delta.slot()];
  const uint32_t end = delta.start() + delta.n_tokens();
  // Earlier positions must be in the blocks that the plan names; CheckReads verifies this.
  const bool may_begin_late =
      kv_kept_ || (config_.prefix_cache && delta.start() % kBlockTokens == 0);
  const bool begins_late =
      slot.next_position == 0 && may_begin_late && delta.start() < slot.n_registered;
  if (begins_late && delta.start() > 0 && IsMean(slot.sampling)) Fail(who + "has lost its sum");
  if ((delta.start() != slot.next_position && !begins_late) || delta.n_tokens() == 0) {
    Fail(absl::StrCat(who, "computes [", delta.start(), ", ", end, ") after ", slot.next_position));
  }
  if (delta.n_tokens() > 1 && end > slot.n_registered) Fail(who + "decodes several tokens");
  if (delta.n_tokens() > static_cast<uint32_t>(config_.max_prefill_chunk)) {
    Fail(who + "has a chunk above the limit");
  }
  if (end > slot.tokens.size()) Fail(who + "needs a token that is not sampled by then");
  if (end >= static_cast<uint32_t>(config_.max_model_len)) Fail(who + "is beyond its context");
  if (delta.sample() != (end >= slot.n_registered)) Fail(who + "samples at the wrong place");
  if (delta.new_blocks_size() != 0 &&
      static_cast<size_t>(delta.new_blocks_size()) != blocks_.size()) {
    Fail(who + "has blocks of the wrong number of groups");
  }
  return errors_.size() == n_errors;
}

void StrictStage::TakeBlocks(const v1::SlotDelta& delta) {
  Slot& slot = slots_[delta.slot()];
  const uint32_t end = delta.start() + delta.n_tokens();
  static const v1::BlockIds kNone;
  for (size_t g = 0; g < blocks_.size(); ++g) {
    std::vector<uint32_t>& table = slot.tables[g];
    const auto& added =
        delta.new_blocks_size() == 0 ? kNone : delta.new_blocks(static_cast<int>(g));
    for (uint32_t id : added.ids()) {
      if (id >= blocks_[g].size()) {
        Fail(absl::StrCat("group ", g, " has no block ", id));
        continue;
      }
      const auto index = static_cast<uint32_t>(table.size());
      Block& block = blocks_[g][id];
      if (slot.next_position > 0 || index > delta.start() / kBlockTokens) {
        block = {slot.owner, index, 0, {}};
      } else if (index == delta.start() / kBlockTokens) {
        // It goes on in a block that it has begun in an earlier epoch, or in a new one.
        const uint32_t n_before = delta.start() % kBlockTokens;
        if (n_before == 0) block = {slot.owner, index, 0, {}};
        if (block.index != index || block.n_filled < n_before) {
          Fail(absl::StrCat("slot ", delta.slot(), " goes on in block ", id, " of group ", g,
                            ", which lacks its tokens"));
        }
        block.owner = slot.owner;
        block.n_filled = n_before;
      }
      table.push_back(id);
    }
    if (table.size() != (end + kBlockTokens - 1) / kBlockTokens) {
      Fail(absl::StrCat("slot ", delta.slot(), " has ", table.size(), " blocks of group ", g,
                        " for ", end, " positions"));
      table.resize((end + kBlockTokens - 1) / kBlockTokens);
    }
  }
}

void StrictStage::Write(const v1::SlotDelta& delta) {
  Slot& slot = slots_[delta.slot()];
  slot.next_position = delta.start() + delta.n_tokens();
  for (size_t g = 0; g < blocks_.size(); ++g) {
    for (uint32_t position = delta.start(); position < slot.next_position; ++position) {
      const uint32_t index = position / kBlockTokens;
      Block& block = blocks_[g][slot.tables[g][index]];
      if (block.owner != slot.owner || block.index != index ||
          block.n_filled != position % kBlockTokens) {
        Fail(absl::StrCat("slot ", delta.slot(), " writes position ", position, " of group ", g,
                          " into a block of another"));
        return;
      }
      block.hashes[block.n_filled++] = slot.hashes[position];
    }
  }
}

void StrictStage::CheckReads(const v1::SlotDelta& delta) {
  const Slot& slot = slots_[delta.slot()];
  for (size_t g = 0; g < blocks_.size(); ++g) {
    const KeyWindow window = config_.kv_groups[g].window;
    const auto first = static_cast<uint32_t>(window.First(static_cast<int32_t>(delta.start())));
    const uint32_t last_index = (slot.next_position - 1) / kBlockTokens;
    for (uint32_t index = first / kBlockTokens; index <= last_index; ++index) {
      const Block& block = blocks_[g][slot.tables[g][index]];
      const uint32_t begin = std::max(index * kBlockTokens, first);
      const uint32_t end = std::min((index + 1) * kBlockTokens, slot.next_position);
      bool is_right = block.index == index && block.n_filled >= end - index * kBlockTokens;
      for (uint32_t position = begin; position < end; ++position) {
        is_right = is_right && block.hashes[position % kBlockTokens] == slot.hashes[position];
      }
      if (!is_right) {
        Fail(absl::StrCat("slot ", delta.slot(), " at ", delta.start(), " sees block ", index,
                          " of group ", g, ", which holds something else"));
        return;
      }
    }
  }
}

void StrictStage::Sample(const v1::SlotDelta& delta, v1::StepResult& result) {
  Slot& slot = slots_[delta.slot()];
  v1::SlotResult out;
  out.set_slot(delta.slot());
  if (slot.sampling.n_prompt_logprobs() >= 0) {
    const uint32_t last = std::min(delta.start() + delta.n_tokens(), slot.n_prompt - 1);
    for (uint32_t position = delta.start() + 1; position <= last; ++position) {
      out.add_prompt_logprobs()->set_chosen(static_cast<float>(position));
    }
  }
  if (delta.sample()) {
    const int32_t token =
        TokenSource::Next(slot.hashes.back(), slot.next_position, slot.n_prompt, slot.sampling);
    AppendToken(slot, token);
    out.set_sampled(true);
    out.set_token(token);
    for (float value : PooledAlone(slot.sampling, slot.hashes[slot.n_prompt - 1], slot.n_prompt)) {
      out.add_values(value);
    }
    if (slot.sampling.n_logprobs() >= 0) {
      out.mutable_logprobs()->set_chosen(static_cast<float>(-token));
    }
  }
  if (out.sampled() || !out.prompt_logprobs().empty()) *result.add_slots() = std::move(out);
}

}  // namespace stagecoach::router
