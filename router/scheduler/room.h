// Who gives way to whom when slots or KV blocks are short.
//
// Within a tenant the order of service decides. Between tenants, their shares: by weight, of those
// that are active. Nobody loses anything to another tenant but what it has beyond its share, nor
// its last sequence; and nobody gets anything that way beyond its own share. A tenant that waits
// takes no more than it has waited for: recomputing what the others lose takes as long at most, so
// that preemption cannot cost more than half of the pipeline, however often tenants come and go.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

// Not thread-safe. None that has a row in the step that is being planned is ever preempted.
class Room {
 public:
  // `state` outlives this.
  explicit Room(SchedulerState* state) : state_(*state) {}

  // A slot, and blocks for its tokens and one more beside what those that run still need: makes
  // them. False: it goes on waiting.
  bool ForNewcomer(Sequence* newcomer);

  // Blocks for positions below `end` of a running sequence: makes them by preempting others.
  // Within a tenant of those that come later in the order of service; of other tenants, from who
  // has more beyond its share. Where nobody would get on that way (kLastResort), the one that came
  // first of all does, at the cost of those that came last.
  enum class Preempts : uint8_t { kNobody, kByShare, kLastResort };
  bool ForRow(Sequence* sequence, uint32_t end, Preempts preempts);

 private:
  struct Holding {
    uint32_t n_slots = 0;
    std::vector<uint64_t> n_blocks;  // by KV group
  };
  using Holdings = absl::flat_hash_map<Tenant*, Holding>;
  using Sequences = std::vector<Sequence*>;

  // Whether the newcomer finds room once those are gone for whom `is_gone` is true.
  template <typename IsGone>
  bool Fits(const Sequence& newcomer, IsGone is_gone) const;
  bool TakeFromWorsePriority(Sequence* newcomer);
  bool TakeFromBeyondShare(Sequence* newcomer);

  Holdings Count() const;
  void Remove(const Sequence& sequence, Holding& holding) const;
  double TimesShareOfSlots(const Tenant& tenant, const Holding& holding) const;
  double TimesShareOfBlocks(const Tenant& tenant, const Holding& holding) const;
  // Whether its tenant stays within its share of slots, or blocks, with it.
  bool IsWithinShare(const Sequence& newcomer, const Holdings& holdings, bool of_slots) const;
  // How many times its tenant's share of blocks that has with one token more of it.
  double TimesShareGrown(const Sequence& sequence, const Holdings& holdings) const;
  // The last one of the tenant that has the most times its share, more than `times_share`, and is
  // not `but_for`. Null: none.
  Sequence* LastBeyond(double times_share, const Holdings& holdings, const Tenant& but_for,
                       const Sequences& gone, bool of_slots) const;
  // The last one of the tenant's in the order of service. Null: none.
  Sequence* LastOf(const Tenant& tenant, const Sequences& gone) const;
  Sequence* VictimFor(const Sequence& sequence, bool last_resort) const;
  bool HasRow(const Sequence& sequence) const { return sequence.last_step == state_.n_steps() + 1; }

  SchedulerState& state_;
};

}  // namespace stagecoach::router
