// Which sequences wait for KV blocks from the store, and what the stages hold for them.
//
// A new sequence whose prompt has blocks that the prefix cache lacks does not enter the queue at
// once: it loads. The stages are asked to read these blocks from the store into their host memory.
// When all have answered, the sequence enters the queue. After its admission, plans restore the
// blocks that the stages hold, and the stages forget the fetch.
//
// A fetch is forgotten only after its answer: a plan may reach a stage before a fetch that was sent
// earlier, because fetches come from the router and plans from the stage before.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/btree_map.h"
#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/scheduler.h"
#include "router/scheduler/sequence.h"

namespace stagecoach::router {

// Not thread-safe; does not own sequences. The caller changes their state.
class KvLoads {
 public:
  // The most fetches without an answer. Beyond that, a sequence does not load.
  static constexpr size_t kMostLoads = 64;

  // `kv` outlives this.
  KvLoads(const SchedulerConfig& config, const KvBlocks* kv);

  enum class Begun : uint8_t {
    kLoads,  // from now on
    kNone,   // there are no tiers, or the fetch would bring less than kv_fetch_min_tokens
    kBusy,   // the stages hold, or are asked for, too much already
  };
  enum class When : uint8_t {
    kArrival,  // the stages may hold as many blocks in host memory as in their KV caches
    kTurn,     // twice as many: those who wait must not hinder the one whose turn it is
  };
  // has_twin: the call before was for a sequence of the same request, and this one waits for its
  // fetch, if the prompts are the same. REQUIRES: the sequence may adopt blocks.
  Begun Begin(Sequence* sequence, When when, bool has_twin = false);
  // All stages have the first n_blocks blocks of a fetch. Returns the sequences that load no more,
  // in order of arrival; empty if nobody waits for it.
  std::vector<Sequence*> Arrive(const v1::KvFetched& fetched);
  // The sequence needs its fetch no more, if it has one.
  void Leave(Sequence* sequence);
  // The pipeline is lost, and its stages forget everything. Returns the sequences that load no
  // more, by fetch. No sequence loads until Open.
  std::vector<std::vector<Sequence*>> Close();
  void Open() { is_open_ = true; }

  // What the stages hold for a sequence that does not load.
  StoredBlocks Of(const Sequence& sequence) const;
  // Whether other sequences use the fetch of this one, too.
  bool IsShared(const Sequence& sequence) const;
  // Its blocks are restored, or were not needed: for all sequences of the fetch.
  void Forget(uint64_t id);

  // New fetches, to be sent to the stages.
  std::vector<std::unique_ptr<v1::KvFetch>> TakeFetches();
  // Adds to the plan what the stages must forget.
  void TakeForgotten(v1::StepPlan& plan);
  bool has_forgotten() const { return !forgotten_.empty(); }
  bool is_on() const { return most_blocks_ > 0; }
  bool has_unanswered() const { return n_unanswered_ > 0; }

  void CheckConsistency() const;

 private:
  struct Load {
    StoredBlocks blocks;  // asked for, or that all stages have
    bool is_there = false;
    std::vector<Sequence*> users;  // in order of arrival
  };
  bool JoinTwin(Sequence* sequence);
  void Remove(uint64_t id);

  const uint32_t min_tokens_;
  const uint64_t most_blocks_;  // 0: the store is off
  const KvBlocks& kv_;
  bool is_open_ = true;
  uint64_t last_id_ = 0;  // grows over all epochs: a late answer is of no later fetch
  uint64_t newest_ = 0;   // fetch of the last sequence that Begin saw; 0: it has none
  absl::btree_map<uint64_t, Load> loads_;  // by id; also those whose sequences have left
  size_t n_unanswered_ = 0;
  uint64_t n_blocks_ = 0;  // of all loads
  std::vector<std::unique_ptr<v1::KvFetch>> fetches_;
  std::vector<uint64_t> forgotten_;
};

}  // namespace stagecoach::router
