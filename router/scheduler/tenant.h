// Tenants, and the service that each has received.
//
// Each tenant has a virtual counter, as in Sheng et al. 2024, "Fairness in Serving Large Language
// Models" (OSDI; VTC): the tokens computed for it, divided by its weight. The tenant with the
// lowest counter is served next. A tenant that had nothing waiting is lifted to the level of the
// others (waiting_queue.h), so that idle time earns no credit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "router/scheduler/block_key.h"
#include "router/scheduler/sequence.h"

namespace stagecoach::router {

struct Tenant {
  // One token of a tenant with weight w counts kServiceUnit / w.
  static constexpr uint64_t kServiceUnit = 1 << 20;

  Tenant(const Account& account, uint32_t index)
      : name(account.tenant),
        index(index),
        kv_owner(KvOwner(account.tenant)),
        weight(account.weight) {}

  bool is_active() const { return n_present > 0; }

  const std::string name;
  const uint32_t index;     // in order of first arrival; breaks ties
  const uint64_t kv_owner;  // its blocks' owner in a KV store
  uint32_t weight;

  uint64_t service = 0;      // virtual counter, in kServiceUnit / weight per token
  uint64_t turn = 0;         // `service` when the planning of the current step began
  uint64_t n_uncharged = 0;  // tokens of the current step that `service` does not include yet
  uint64_t n_computed = 0;   // planned tokens, including those whose results are dropped

  // When the tenant's first waiting sequence was first refused a slot or blocks, on
  // SchedulerState::clock.
  std::optional<uint64_t> refused_at;

  uint32_t n_present = 0;  // loading, waiting and running sequences
  uint32_t n_running = 0;
  absl::btree_set<Sequence*, ServedFirst> waiting;
  absl::btree_set<Sequence*, ServedFirst> loading;  // not served yet (kv_loads.h)
  // Waiting and loading sequences that never had a slot, also counted above. Its part of the queue
  // counts these.
  uint32_t n_new = 0;
  uint64_t n_new_tokens = 0;
};

struct LeastServed {
  bool operator()(const Tenant* a, const Tenant* b) const {
    return a->service != b->service ? a->service < b->service : a->index < b->index;
  }
};

// The order in which a step plans rows: tenants by their service before the step, and one tenant's
// sequences in their order of service.
struct InTurn {
  bool operator()(const Sequence* a, const Sequence* b) const {
    const Tenant* of_a = a->tenant;
    const Tenant* of_b = b->tenant;
    if (of_a == of_b) return ServedFirst()(a, b);
    return of_a->turn != of_b->turn ? of_a->turn < of_b->turn : of_a->index < of_b->index;
  }
};

// Not thread-safe. Tenants are never removed: a tenant that returns finds its counter unchanged.
class Tenants {
 public:
  // The account's tenant; created at its first request. The weight of the latest request applies.
  Tenant* Of(const Account& account);
  const std::vector<std::unique_ptr<Tenant>>& all() const { return all_; }

  // Counts a sequence that arrives or leaves. A tenant is active while it has a loading, waiting or
  // running sequence.
  void Enter(Tenant* tenant);
  void Leave(Tenant* tenant);
  uint32_t n_active() const { return n_active_; }

  // The ratio of `held` to the tenant's share of `total`; above 1 the tenant exceeds its share.
  // Active tenants and `tenant` share by their weights.
  double TimesShare(const Tenant& tenant, uint64_t held, uint64_t total) const;

 private:
  std::vector<std::unique_ptr<Tenant>> all_;
  absl::flat_hash_map<std::string, Tenant*> by_name_;
  uint32_t n_active_ = 0;
  uint64_t active_weight_ = 0;
};

}  // namespace stagecoach::router
