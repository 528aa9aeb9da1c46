// Decides which sequences are preempted when slots or KV blocks are short.
//
// Within a tenant, the order of service decides. Between tenants, shares decide: active tenants
// share by weight. Another tenant takes from a tenant only what that one holds beyond its share,
// and never its last sequence; and takes no more than its own share. A waiting tenant may preempt
// only as much work as the pipeline did while the tenant waited. Recomputing that work takes at
// most the same time, so preemption never costs more than half of the pipeline's time, however
// often tenants come and go.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

// Not thread-safe. Never preempts a sequence that has a row in the step being planned.
class Room {
 public:
  // `state` outlives this.
  explicit Room(SchedulerState* state) : state_(*state) {}

  // Makes sure that there is a slot for the newcomer, and blocks for its tokens plus one more,
  // beside what the running sequences still need; preempts others if necessary. False: the newcomer
  // keeps waiting.
  bool ForNewcomer(Sequence* newcomer);

  // Makes sure that there are blocks for the positions below `end` of a running sequence; preempts
  // others if necessary. Victims are sequences of the same tenant that come later in the order of
  // service, and sequences of a tenant that is further beyond its share. kLastResort: if that
  // leaves no sequence able to run, the oldest sequence takes from the youngest ones.
  enum class Preempts : uint8_t { kNobody, kByShare, kLastResort };
  bool ForRow(Sequence* sequence, uint32_t end, Preempts preempts);

 private:
  struct Holding {
    uint32_t n_slots = 0;
    std::vector<uint64_t> n_blocks;  // by KV group
  };
  using Holdings = absl::flat_hash_map<Tenant*, Holding>;
  using Sequences = std::vector<Sequence*>;

  // Whether the newcomer fits after the sequences for which `is_gone` is true are preempted.
  template <typename IsGone>
  bool Fits(const Sequence& newcomer, IsGone is_gone) const;
  bool TakeFromWorsePriority(Sequence* newcomer);
  bool TakeFromBeyondShare(Sequence* newcomer);

  Holdings Count() const;
  void Remove(const Sequence& sequence, Holding& holding) const;
  double TimesShareOfSlots(const Tenant& tenant, const Holding& holding) const;
  double TimesShareOfBlocks(const Tenant& tenant, const Holding& holding) const;
  // Whether the newcomer's tenant stays within its share of slots, or of blocks, after admission.
  bool IsWithinShare(const Sequence& newcomer, const Holdings& holdings, bool of_slots) const;
  // The ratio of the tenant's blocks to its share after `sequence` grows by one token.
  double TimesShareGrown(const Sequence& sequence, const Holdings& holdings) const;
  // The last sequence in the order of service of the tenant whose holdings exceed its share most,
  // by a ratio above `times_share`. Ignores the tenant `but_for` and tenants with a single
  // sequence. Null: none.
  Sequence* LastBeyond(double times_share, const Holdings& holdings, const Tenant& but_for,
                       const Sequences& gone, bool of_slots) const;
  // The tenant's last sequence in the order of service. Null: none.
  Sequence* LastOf(const Tenant& tenant, const Sequences& gone) const;
  Sequence* VictimFor(const Sequence& sequence, bool last_resort) const;
  bool HasRow(const Sequence& sequence) const { return sequence.last_step == state_.n_steps() + 1; }

  SchedulerState& state_;
};

}  // namespace stagecoach::router
