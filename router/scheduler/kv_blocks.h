// The KV blocks of all groups, and the block tables of sequences.
//
// Block i of a table holds positions [16 i, 16 i + 16); 16: kBlockTokens. In a window group, blocks
// behind the window return to the pool. Table indices stay logical, so stages need no message about
// it: they never read behind the window.
//
// The prefix cache remembers full blocks with known tokens, also after their last holder is gone,
// until the pool reuses them. A sequence that begins with the same tokens adopts these blocks.
// Every stage executes plans in order, and within one step all rows write before any row reads. So
// a sequence may adopt a block as soon as the row that fills it is planned.
//
// With a scope, servers share blocks through a store (--kv-store). Each plan saves the remembered
// blocks that the steps before it have computed. A sequence whose prefix the cache lacks may get
// blocks from the store instead: a restored block is filled before any row of its step runs.
//
// A sequence of a model with recurrent layers also needs the state at the end of the blocks that it
// adopts. So it adopts only as many as end where a step has saved the state, and not in the same
// step, because the state comes with the last row. Saved states have a pool of their own, and the
// tree holds them as it holds blocks. The store gets them under the names of their last blocks.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/key_window.h"
#include "router/scheduler/block_pool.h"
#include "router/scheduler/kv_events.h"
#include "router/scheduler/prefix_tree.h"
#include "router/scheduler/scheduler.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

constexpr uint32_t BlocksFor(uint32_t n_tokens) {
  return (n_tokens + kBlockTokens - 1) / kBlockTokens;
}

// The most decodes of one sequence in flight.
inline constexpr uint32_t kMostDecodes = 2;

// One sequence's blocks in one KV group.
struct BlockTable {
  std::vector<uint32_t> ids;  // by logical index; entries below n_returned are undefined
  uint32_t n_returned = 0;    // blocks at the front that are behind the window
  uint32_t n_told = 0;        // blocks that plans have sent to the stages

  uint32_t n_held() const { return static_cast<uint32_t>(ids.size()) - n_returned; }
};

using BlockTables = std::vector<BlockTable>;  // by KV group

// The part of a sequence's blocks that the prefix cache remembers.
struct RememberedPrefix {
  PrefixTree::Node* node = nullptr;  // node of the last block; pinned
  uint32_t n_blocks = 0;
};

// A recurrent state that a step saves.
struct SavedState {
  uint32_t id = 0;
  uint32_t position = 0;  // tokens that it has seen: whole blocks
  uint64_t step = 0;
};

// A sequence's share of the saved states.
struct StateMarks {
  // Saved, but its tokens are not known yet, so that the tree does not have it. The sequence holds
  // it.
  std::optional<SavedState> pending;
  // In the tree. A decode has saved it; it is given up when the tree has the next one.
  std::optional<SavedState> rolling;
  uint32_t last_position = 0;  // of the last one saved, or that the sequence began with
  // The same of the last one that the store was to get.
  uint32_t stored_position = 0;
};

using KvRestores = google::protobuf::RepeatedPtrField<v1::KvRestore>;

// Blocks [first, end) of a sequence that the stages hold for it: they have read them from the
// store.
struct StoredBlocks {
  uint64_t fetch = 0;  // v1::KvFetch::id, whose first block is `first`; 0: there are none
  uint32_t first = 0;
  uint32_t end = 0;
  // The first of them come from host memory, the next ones from the disk, the others from the
  // store, as the stage with the fewest blocks counts them.
  uint32_t n_host = 0;
  uint32_t n_disk = 0;

  // Adds the tokens of blocks [begin, to) to those of their tiers.
  void Count(uint32_t begin, uint32_t to, v1::StoredTokens& tokens) const;
};

// Not thread-safe.
class KvBlocks {
 public:
  // A store gets a state only so many tokens behind the sequence's one before: it takes as much
  // memory as the blocks of thousands of tokens.
  static constexpr uint32_t kLeastStoredTokens = 64;

  // `max_chunk_tokens`: the most positions of one sequence in one step. `remembers`: whether the
  // prefix cache is on. `kv_scope`: see SchedulerConfig; empty: there is no store. `events`: who
  // wants to know which blocks are remembered. n_saved_states: set if the model has recurrent
  // layers.
  KvBlocks(const std::vector<SchedulerConfig::KvGroup>& groups, uint32_t max_chunk_tokens,
           bool remembers = true, const std::string& kv_scope = "",
           const KvEventOptions& events = {}, std::optional<uint32_t> n_saved_states = {});

  int n_groups() const { return static_cast<int>(groups_.size()); }
  KeyWindow window(int group) const { return groups_[group].window; }
  uint32_t n_total(int group) const { return groups_[group].pool.n_total(); }
  uint32_t n_free(int group) const { return groups_[group].pool.n_free(); }
  uint32_t n_holders(int group, uint32_t id) const { return groups_[group].pool.n_holders(id); }
  // Fraction of free blocks in the group where it is smallest.
  double FreeFraction() const;

  // The most blocks of a group that a sequence holds at the same time while it grows to n_tokens
  // positions.
  uint32_t MostHeld(int group, uint32_t n_tokens) const;

  // The free blocks suffice to cover positions [0, Reach).
  uint32_t Reach(const BlockTables& tables) const;

  // Takes the missing blocks for positions below `end`, and appends them to the tables and to
  // `delta`. If no block is missing, as in most decodes, `delta` names no group. REQUIRES: end <=
  // Reach(tables).
  void Grow(BlockTables& tables, uint32_t end, v1::SlotDelta& delta);

  // The step being planned.
  void BeginStep(uint64_t step);
  // Takes a place for the state that the step being planned saves at `position`, if there is one.
  // Returns its number.
  std::optional<uint32_t> SaveState(uint32_t position, StateMarks& marks);
  // The tree has `prefix`: it gets the pending state if that is within the prefix. is_rolling: the
  // sequence's next one replaces it. A store gets the others as `owner`'s.
  void RememberState(const RememberedPrefix& prefix, bool is_rolling, StateMarks& marks,
                     uint64_t owner);
  // The sequence will not replace its rolling state, so a store gets that, too.
  void StoreRollingState(StateMarks& marks, uint64_t owner);
  // The sequence leaves.
  void DropStates(StateMarks& marks);
  // The number of the state that belongs to the adopted `prefix`. Absent: it has none. It was used
  // just now.
  std::optional<uint32_t> StateOf(const RememberedPrefix& prefix);
  bool saves_states() const { return states_.has_value() && remembers_; }
  // Recounts the saved states. O(states).
  void CheckStates(uint32_t n_pending) const;

  // Prefix match: fills the empty tables with remembered blocks for as many of the first tokens as
  // possible, but leaves at least one token to compute. Returns the number of tokens in these
  // blocks.
  uint32_t Adopt(const std::string& salt, std::span<const int32_t> tokens, BlockTables& tables,
                 RememberedPrefix& prefix);
  // The number of tokens that Adopt would return.
  uint32_t NAdoptable(const std::string& salt, std::span<const int32_t> tokens) const {
    return static_cast<uint32_t>(UsablePath(salt, tokens).size()) * kBlockTokens;
  }
  // How many of the counted sequences hold each block: per group, from block id to count.
  using Holds = std::vector<absl::flat_hash_map<uint32_t, uint32_t>>;
  void CountHolds(const BlockTables& tables, Holds& holds) const;
  // Blocks that become free when these holds end, without the blocks that are free already.
  uint32_t NFreed(int group, const Holds& holds) const;
  // The most free blocks that a sequence takes while it grows to n_tokens positions.
  uint32_t MostTaken(int group, const BlockTable& table, uint32_t n_tokens) const;
  // The same, per group, for a sequence that has not begun and may adopt remembered blocks, once
  // the holds in `gone` have ended.
  std::vector<uint32_t> MostTakenOfNew(const std::string& salt, std::span<const int32_t> tokens,
                                       uint32_t n_tokens, const Holds& gone) const;
  // What fills a block. The store has what comes from there already.
  enum class Source : uint8_t { kComputed, kStore };
  // Remembers the full blocks of `tokens`, which steps up to `step` fill. A store gets them as
  // `owner`'s. REQUIRES: the tables' blocks hold exactly these tokens.
  void Remember(const std::string& salt, std::span<const int32_t> tokens, const BlockTables& tables,
                RememberedPrefix& prefix, uint64_t step, Source source = Source::kComputed,
                uint64_t owner = 0);

  // With a scope only: asks for the full blocks of `tokens` after those that Adopt would use, but
  // leaves at least one token to compute. Returns the index of the first block. O(blocks), with one
  // SHA-256 for each block that it asks for.
  uint32_t AskForMissing(const std::string& salt, std::span<const int32_t> tokens,
                         v1::KvFetch& fetch) const;
  // Continues the tables with blocks that plans are to restore from `stored`: as many as there are,
  // or as the free blocks allow if the next row needs one more. None if the tables end before the
  // first of them. Adds what plans have to say to `restores`, and returns the number of blocks in
  // the tables. Of a model with recurrent layers it restores all of them or none, and with the last
  // one the state at its end, which `marks` then has as pending.
  uint32_t Restore(const StoredBlocks& stored, BlockTables& tables, KvRestores& restores,
                   StateMarks& marks);
  // The step being planned restores the pending state, if there is one, and the tree has `prefix`.
  void RememberRestoredState(const RememberedPrefix& prefix, StateMarks& marks);
  // Adds to `plan` the saves of blocks that steps before `step`, the plan's own, have computed. No
  // block is overwritten before: a block that becomes free is taken by a later plan, or by this
  // one, whose saves come first.
  void TakeSaves(uint64_t step, v1::StepPlan& plan);
  bool has_saves() const { return !saves_.empty(); }
  uint64_t n_saved() const { return n_saved_; }  // blocks and states

  // Returns the blocks that no row at `next_position` or later reads. The rows of the step that
  // ends there still read them, so call this only after all of that step's blocks are taken.
  void ReturnBehindWindows(BlockTables& tables, uint32_t next_position);

  void ReturnAll(BlockTables& tables, RememberedPrefix& prefix);

  // The steps after `step` may not have happened: blocks that they may fill are not adopted any
  // more, and what is not saved yet never is. O(blocks).
  void ForgetAfter(uint64_t step);
  // Returns what a sequence took for `position` and later positions, which are computed again, by
  // stages that know nothing of its blocks. False, without a change, if blocks that these positions
  // read are behind a window and returned already.
  bool TakeBack(BlockTables& tables, RememberedPrefix& prefix, uint32_t position);

  // The contents of all blocks are lost: none may be adopted any more. REQUIRES: nobody holds a
  // block or a remembered prefix. O(blocks).
  void ForgetAll();

  // Gives the sink of events what has happened since the last call. O(blocks) after a loss of
  // events.
  void PublishEvents();
  // Tells the sink that no block can be adopted any more, because no sequence comes here again.
  void TellGone();

 private:
  // The longest usable path of remembered blocks: it holds every block that the positions after it
  // read.
  std::vector<PrefixTree::Node*> UsablePath(const std::string& salt,
                                            std::span<const int32_t> tokens) const;
  // The first block that rows at `next_position` and later read.
  uint32_t FirstSeen(int group, uint32_t next_position) const;
  uint32_t Take(int group);
  void Return(int group, uint32_t id) { groups_[group].pool.Return(id, tree_.Has(group, id)); }
  // The tree's, with an event.
  void Forget(int group, uint32_t id);
  static int ToldGroup(const std::vector<SchedulerConfig::KvGroup>& groups);
  void TellStored(int group, const PrefixTree::Node& node);
  // Events that tell of every remembered block.
  KvEvents AllStored() const;
  // A save under the node's name, without numbers.
  v1::KvSave& AddSave(const PrefixTree::Node& node, uint64_t step, uint64_t owner);
  void Save(const PrefixTree::Node& node, uint64_t step, uint64_t owner);
  // Whether tables of n_there blocks can grow to `end` restored ones, and by one more.
  bool CanRestore(uint32_t n_there, uint32_t end) const;

  // The tree's group of the saved states comes after those of blocks.
  int state_group() const { return n_groups(); }
  bool HasUsableState(const PrefixTree::Node& node) const;
  // The tree has the state: no other sequence has taken its place.
  bool IsThere(const SavedState& saved) const;
  void ForgetState(uint32_t id);
  // A place that the step being planned may write.
  std::optional<uint32_t> TakeState();
  // If there is a store, and it has no state of the sequence shortly before this one.
  void StoreState(const SavedState& saved, StateMarks& marks, uint64_t owner);
  // Gives up a place that the tree does not have.
  void FreeState(const SavedState& saved);

  struct Group {
    KeyWindow window;
    BlockPool pool;
    std::vector<uint64_t> filled_by;  // by block, if remembered: the last step that may fill it
  };
  std::vector<Group> groups_;
  struct States {
    BlockPool pool;
    std::vector<uint64_t> saved_by;  // by state: the last step that saves it
    // Places that nobody needs any more, but that the step being planned writes. It must not write
    // them twice: stages compute the sequences of a step side by side.
    std::vector<uint32_t> written = {};
  };
  std::optional<States> states_;  // set if the model has recurrent layers
  uint64_t step_ = 0;             // being planned
  uint32_t max_chunk_tokens_;
  bool remembers_;
  bool has_store_;
  int told_group_;                      // the group that events tell of
  std::unique_ptr<KvEventLog> events_;  // null: nobody wants to know
  PrefixTree tree_;
  struct PendingSave {
    uint64_t step;  // the last step that may fill the block
    v1::KvSave save;
  };
  std::vector<PendingSave> saves_;
  uint64_t n_saved_ = 0;
};

}  // namespace stagecoach::router
