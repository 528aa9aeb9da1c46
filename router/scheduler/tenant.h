// On whose account sequences are computed, and what each has had.
//
// A virtual counter a tenant, as in Sheng et al. 2024, "Fairness in Serving Large Language Models"
// (OSDI; VTC): the tokens that were computed for it, over its weight. The tenant with the least is
// served next. Tenants that had nothing waiting are lifted to the others' level (waiting_queue.h),
// so that idle time gives no credit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "router/scheduler/sequence.h"

namespace stagecoach::router {

struct Tenant {
  // A token of a tenant of weight w counts kServiceUnit / w.
  static constexpr uint64_t kServiceUnit = 1 << 20;

  Tenant(const Account& account, uint32_t index)
      : name(account.tenant), index(index), weight(account.weight) {}

  bool is_active() const { return n_present > 0; }

  const std::string name;
  const uint32_t index;  // in the order in which they first came; decides between equals
  uint32_t weight;

  uint64_t service = 0;      // virtual
  uint64_t turn = 0;         // `service` when the step that is being planned began
  uint64_t n_uncharged = 0;  // tokens of that step that `service` lacks
  uint64_t n_computed = 0;   // tokens: planned, so also those that were computed for nothing

  // Since when the first that waits has lacked a slot or blocks, by SchedulerState::clock.
  std::optional<uint64_t> refused_at;

  uint32_t n_present = 0;  // sequences that wait or run
  uint32_t n_running = 0;
  absl::btree_set<Sequence*, ServedFirst> waiting;
  // Those that never had a slot, counted above as well: what its part of the queue counts.
  uint32_t n_new = 0;
  uint64_t n_new_tokens = 0;
};

struct LeastServed {
  bool operator()(const Tenant* a, const Tenant* b) const {
    return a->service != b->service ? a->service < b->service : a->index < b->index;
  }
};

// The order in which a step plans rows: tenants by what they had before it, and one tenant's
// sequences in their order of service.
struct InTurn {
  bool operator()(const Sequence* a, const Sequence* b) const {
    const Tenant* of_a = a->tenant;
    const Tenant* of_b = b->tenant;
    if (of_a == of_b) return ServedFirst()(a, b);
    return of_a->turn != of_b->turn ? of_a->turn < of_b->turn : of_a->index < of_b->index;
  }
};

// Not thread-safe. Tenants stay: who comes back finds its counter as it was.
class Tenants {
 public:
  // Made if there is none of this name; an account's weight holds from its latest request on.
  Tenant* Of(const Account& account);
  const std::vector<std::unique_ptr<Tenant>>& all() const { return all_; }

  // A sequence of the tenant's comes, or has gone. Active is who has one that waits or runs.
  void Enter(Tenant* tenant);
  void Leave(Tenant* tenant);
  uint32_t n_active() const { return n_active_; }

  // How many times its share of `total` it has with `held`; above 1: more than its share. Shares
  // go by the weights of the tenants that are active, and of `tenant`.
  double TimesShare(const Tenant& tenant, uint64_t held, uint64_t total) const;

 private:
  std::vector<std::unique_ptr<Tenant>> all_;
  absl::flat_hash_map<std::string, Tenant*> by_name_;
  uint32_t n_active_ = 0;
  uint64_t active_weight_ = 0;
};

}  // namespace stagecoach::router
