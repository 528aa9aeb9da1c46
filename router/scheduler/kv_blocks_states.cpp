// The part of KvBlocks that keeps saved states of recurrent layers.
//
// A store gets a state once the tree has it, if it is to stay: at the end of a prompt, every 2,048
// tokens within one, and the last one when its sequence leaves.
#include "common/check.h"
#include "router/scheduler/kv_blocks.h"

namespace stagecoach::router {

bool KvBlocks::HasUsableState(const PrefixTree::Node& node) const {
  const uint32_t id = node.block(state_group());
  // The step being planned begins with states that earlier ones have saved.
  return id != PrefixTree::kNoBlock && states_->saved_by[id] != step_;
}

void KvBlocks::BeginStep(uint64_t step) {
  step_ = step;
  if (!states_) return;
  for (const uint32_t id : states_->written) states_->pool.Return(id, /*keep=*/false);
  states_->written.clear();
}

void KvBlocks::FreeState(const SavedState& saved) {
  SC_CHECK(states_.has_value());
  if (saved.step == step_) {
    states_->written.push_back(saved.id);
  } else {
    states_->pool.Return(saved.id, /*keep=*/false);
  }
}

bool KvBlocks::IsThere(const SavedState& saved) const {
  SC_CHECK(states_.has_value());
  return tree_.Has(state_group(), saved.id) && states_->saved_by[saved.id] == saved.step;
}

void KvBlocks::ForgetState(uint32_t id) { tree_.Forget(state_group(), id); }

std::optional<uint32_t> KvBlocks::TakeState() {
  SC_CHECK(states_.has_value());
  BlockPool& pool = states_->pool;
  if (pool.n_free() == 0) return std::nullopt;
  const BlockPool::Taken taken = pool.Take();
  if (taken.was_kept && states_->saved_by[taken.id] == step_) {
    pool.Return(taken.id, /*keep=*/true);  // this step writes even the oldest one
    return std::nullopt;
  }
  if (taken.was_kept) ForgetState(taken.id);
  return taken.id;
}

std::optional<uint32_t> KvBlocks::SaveState(uint32_t position, StateMarks& marks) {
  SC_CHECK(states_.has_value());
  if (!marks.pending) {
    const std::optional<uint32_t> id = TakeState();
    if (!id) return std::nullopt;
    marks.pending = SavedState{.id = *id};
  }
  marks.pending->position = position;
  marks.pending->step = step_;
  states_->saved_by[marks.pending->id] = step_;
  return marks.pending->id;
}

void KvBlocks::RememberState(const RememberedPrefix& prefix, bool is_rolling, StateMarks& marks,
                             uint64_t owner) {
  SC_CHECK(states_.has_value() && marks.pending.has_value());
  const SavedState saved = *marks.pending;
  const uint32_t n_blocks = saved.position / kBlockTokens;
  if (prefix.node == nullptr || prefix.n_blocks < n_blocks) return;
  PrefixTree::Node* const node = PrefixTree::Ancestor(prefix.node, prefix.n_blocks - n_blocks);
  marks.pending.reset();
  // Another sequence may have saved the same state first.
  const bool is_new = node->block(state_group()) == PrefixTree::kNoBlock;
  if (is_new) {
    tree_.SetBlock(node, state_group(), saved.id);
    states_->pool.Return(saved.id, /*keep=*/true);
  } else {
    FreeState(saved);
  }
  if (!is_rolling) {
    if (is_new) StoreState(saved, marks, owner);
    return;
  }
  // The one before is given up only now: what is pending is lost if the sequence leaves. Another
  // sequence may have taken its place meanwhile.
  if (marks.rolling && IsThere(*marks.rolling)) {
    ForgetState(marks.rolling->id);
    states_->pool.Discard(marks.rolling->id);
  }
  marks.rolling.reset();
  if (is_new) marks.rolling = saved;
}

void KvBlocks::RememberRestoredState(const RememberedPrefix& prefix, StateMarks& marks) {
  if (!marks.pending) return;
  SC_CHECK(states_.has_value());
  marks.pending->step = step_;
  states_->saved_by[marks.pending->id] = step_;
  RememberState(prefix, /*is_rolling=*/false, marks, /*owner=*/0);
  SC_CHECK(!marks.pending);
}

void KvBlocks::StoreRollingState(StateMarks& marks, uint64_t owner) {
  if (marks.rolling && IsThere(*marks.rolling)) StoreState(*marks.rolling, marks, owner);
}

void KvBlocks::DropStates(StateMarks& marks) {
  if (marks.pending) FreeState(*marks.pending);
  marks = {};
}

std::optional<uint32_t> KvBlocks::StateOf(const RememberedPrefix& prefix) {
  if (!states_ || prefix.node == nullptr) return std::nullopt;
  const uint32_t id = prefix.node->block(state_group());
  if (id == PrefixTree::kNoBlock) return std::nullopt;
  states_->pool.Share(id);
  states_->pool.Return(id, /*keep=*/true);
  return id;
}

void KvBlocks::CheckStates(uint32_t n_pending) const {
  if (!states_) {
    SC_CHECK(n_pending == 0);
    return;
  }
  SC_CHECK(states_->pool.n_free() + n_pending + states_->written.size() == states_->pool.n_total());
  for (uint32_t id = 0; id < states_->pool.n_total(); ++id) {
    if (tree_.Has(state_group(), id)) SC_CHECK(states_->pool.n_holders(id) == 0);
  }
}

}  // namespace stagecoach::router
