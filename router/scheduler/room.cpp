#include "router/scheduler/room.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "router/scheduler/policies.h"

namespace stagecoach::router {
namespace {

bool Contains(const std::vector<Sequence*>& sequences, const Sequence* one) {
  return std::find(sequences.begin(), sequences.end(), one) != sequences.end();
}

}  // namespace

template <typename IsGone>
bool Room::Fits(const Sequence& newcomer, IsGone is_gone) const {
  const KvBlocks& kv = state_.kv();
  KvBlocks::Holds gone;
  uint32_t n_decoding = 0;
  for (const Sequence* sequence : state_.running()) {
    if (is_gone(sequence)) {
      kv.CountHolds(sequence->tables, gone);
    } else if (sequence->decoding()) {
      ++n_decoding;
    }
  }
  std::vector<int64_t> n_left;  // blocks available to the newcomer, per group
  for (int g = 0; g < kv.n_groups(); ++g) {
    n_left.push_back(int64_t{kv.n_free(g)} + kv.NFreed(g, gone) - AdmissionHeadroom()(n_decoding));
    for (const Sequence* sequence : state_.running()) {
      if (sequence->decoding() || is_gone(sequence)) continue;
      n_left[g] -= kv.MostTaken(g, sequence->tables[g], sequence->n_registered + 1);
    }
  }
  const uint32_t n_tokens = newcomer.n_tokens() + 1;
  const auto fits = [&](const auto& most_taken) {
    for (int g = 0; g < kv.n_groups(); ++g) {
      if (n_left[g] < most_taken(g)) return false;
    }
    return true;
  };
  // Look up adoptable blocks only if they matter.
  if (fits([&](int g) { return kv.MostHeld(g, n_tokens); })) return true;
  if (!SchedulerState::MayAdopt(newcomer)) return false;
  const std::vector<uint32_t> most_taken =
      kv.MostTakenOfNew(newcomer.request->cache_salt, newcomer.tokens(), n_tokens, gone);
  return fits([&](int g) { return most_taken[g]; });
}

bool Room::ForNewcomer(Sequence* newcomer) {
  if (state_.has_free_slot() && Fits(*newcomer, [](const Sequence*) { return false; })) return true;
  Tenant& tenant = *newcomer->tenant;
  if (!tenant.refused_at) tenant.refused_at = state_.clock();
  return TakeFromWorsePriority(newcomer) || TakeFromBeyondShare(newcomer);
}

bool Room::TakeFromWorsePriority(Sequence* newcomer) {
  const auto gives_way = [newcomer](const Sequence* sequence) {
    return sequence->tenant == newcomer->tenant &&
           sequence->request->priority > newcomer->request->priority;
  };
  const Sequence* worst = LastOf(*newcomer->tenant, {});
  if (worst == nullptr || !gives_way(worst)) return false;
  if (!Fits(*newcomer, gives_way)) return false;
  do {
    Sequence* last = LastOf(*newcomer->tenant, {});
    SC_CHECK(last != nullptr && gives_way(last));
    state_.Preempt(last);
  } while (!state_.has_free_slot() || !Fits(*newcomer, [](const Sequence*) { return false; }));
  return true;
}

bool Room::TakeFromBeyondShare(Sequence* newcomer) {
  const Tenant& tenant = *newcomer->tenant;
  if (state_.tenants().n_active() < 2) return false;
  uint64_t n_waited = state_.clock() - *tenant.refused_at;
  if (n_waited == 0) return false;
  Holdings holdings = Count();
  Sequences gone;
  const auto is_gone = [&gone](const Sequence* one) { return Contains(gone, one); };
  do {
    const bool of_slots = !state_.has_free_slot() && gone.empty();
    if (!IsWithinShare(*newcomer, holdings, of_slots)) return false;
    Sequence* victim = LastBeyond(1, holdings, tenant, gone, of_slots);
    if (victim == nullptr || victim->next_position > n_waited) return false;
    n_waited -= victim->next_position;
    gone.push_back(victim);
    Remove(*victim, holdings[victim->tenant]);
  } while (!Fits(*newcomer, is_gone));
  for (Sequence* sequence : gone) {
    state_.Preempt(sequence);
    state_.CountSharePreemption();
  }
  return true;
}

bool Room::ForRow(Sequence* sequence, uint32_t end, Preempts preempts) {
  while (state_.kv().Reach(sequence->tables) < end) {
    Sequence* victim = preempts == Preempts::kNobody
                           ? nullptr
                           : VictimFor(*sequence, preempts == Preempts::kLastResort);
    // It keeps its blocks and waits: a sequence before it takes them or ends.
    if (victim == nullptr) return false;
    state_.Preempt(victim);
  }
  return true;
}

Sequence* Room::VictimFor(const Sequence& sequence, bool last_resort) const {
  const Tenant& tenant = *sequence.tenant;
  const bool is_alone = tenant.n_running == state_.running().size();
  if (!is_alone) {
    const Holdings holdings = Count();
    const double times_share = std::max(1.0, TimesShareGrown(sequence, holdings));
    Sequence* beyond = LastBeyond(times_share, holdings, tenant, {}, /*of_slots=*/false);
    if (beyond != nullptr) return beyond;
  }
  Sequence* last = LastOf(tenant, {});
  if (last != nullptr && ServedFirst()(&sequence, last)) return last;
  if (is_alone || !last_resort) return nullptr;
  Sequence* youngest = nullptr;
  for (Sequence* other : state_.running()) {
    if (other->arrival <= sequence.arrival || HasRow(*other)) continue;
    if (youngest == nullptr || youngest->arrival < other->arrival) youngest = other;
  }
  return youngest;
}

Room::Holdings Room::Count() const {
  Holdings holdings;
  for (const Sequence* sequence : state_.running()) {
    Holding& holding = holdings[sequence->tenant];
    holding.n_blocks.resize(sequence->tables.size());
    ++holding.n_slots;
    for (size_t g = 0; g < sequence->tables.size(); ++g) {
      holding.n_blocks[g] += sequence->tables[g].n_held();
    }
  }
  return holdings;
}

void Room::Remove(const Sequence& sequence, Holding& holding) const {
  --holding.n_slots;
  for (size_t g = 0; g < sequence.tables.size(); ++g) {
    holding.n_blocks[g] -= sequence.tables[g].n_held();
  }
}

double Room::TimesShareOfSlots(const Tenant& tenant, const Holding& holding) const {
  return state_.tenants().TimesShare(tenant, holding.n_slots, state_.config().max_sequences);
}

double Room::TimesShareOfBlocks(const Tenant& tenant, const Holding& holding) const {
  double most = 0;
  for (size_t g = 0; g < holding.n_blocks.size(); ++g) {
    most = std::max(most, state_.tenants().TimesShare(tenant, holding.n_blocks[g],
                                                      state_.kv().n_total(static_cast<int>(g))));
  }
  return most;
}

bool Room::IsWithinShare(const Sequence& newcomer, const Holdings& holdings, bool of_slots) const {
  const auto found = holdings.find(newcomer.tenant);
  if (found == holdings.end()) return true;  // a tenant may always have one sequence
  Holding with = found->second;
  ++with.n_slots;
  if (of_slots) return TimesShareOfSlots(*newcomer.tenant, with) <= 1;
  for (size_t g = 0; g < with.n_blocks.size(); ++g) {
    with.n_blocks[g] += state_.kv().MostHeld(static_cast<int>(g), newcomer.n_tokens() + 1);
  }
  return TimesShareOfBlocks(*newcomer.tenant, with) <= 1;
}

double Room::TimesShareGrown(const Sequence& sequence, const Holdings& holdings) const {
  Holding with = holdings.at(sequence.tenant);
  for (size_t g = 0; g < with.n_blocks.size(); ++g) {
    with.n_blocks[g] +=
        state_.kv().MostTaken(static_cast<int>(g), sequence.tables[g], sequence.next_position + 1);
  }
  return TimesShareOfBlocks(*sequence.tenant, with);
}

Sequence* Room::LastBeyond(double times_share, const Holdings& holdings, const Tenant& but_for,
                           const Sequences& gone, bool of_slots) const {
  const Tenant* most = nullptr;
  Sequence* last = nullptr;
  for (const auto& [tenant, holding] : holdings) {
    if (tenant == &but_for || holding.n_slots < 2) continue;
    const double times =
        of_slots ? TimesShareOfSlots(*tenant, holding) : TimesShareOfBlocks(*tenant, holding);
    // Ties go by index: a hash map's order differs between processes.
    const bool is_more = times > times_share ||
                         (most != nullptr && times == times_share && tenant->index < most->index);
    if (!is_more) continue;
    Sequence* of_tenant = LastOf(*tenant, gone);
    if (of_tenant == nullptr) continue;
    most = tenant;
    last = of_tenant;
    times_share = times;
  }
  return last;
}

Sequence* Room::LastOf(const Tenant& tenant, const Sequences& gone) const {
  const auto& running = state_.running();
  for (auto one = running.rbegin(); one != running.rend(); ++one) {
    if ((*one)->tenant == &tenant && !HasRow(**one) && !Contains(gone, *one)) return *one;
  }
  return nullptr;
}

}  // namespace stagecoach::router
