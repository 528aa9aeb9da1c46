// Sequences without a slot. First the tenant that had the least service for its weight, then its
// sequences in their order of service. Operations are O(log n), in the tenant's sequences and in
// the tenants that wait.
//
// Nobody is owed anything for a time in which it had nothing waiting: whose first sequence comes is
// lifted to the least served of those that wait, and where nobody does, to the most served of all.
#pragma once

#include <cstdint>

#include "absl/container/btree_set.h"
#include "router/scheduler/sequence.h"
#include "router/scheduler/tenant.h"

namespace stagecoach::router {

// Not thread-safe; does not own sequences or tenants.
class WaitingQueue {
 public:
  void Add(Sequence* sequence);
  // REQUIRES: it is in the queue, with as many to prefill as when it was added.
  void Remove(Sequence* sequence);
  // One that is in the queue has a token more to prefill.
  void AddToken(Sequence* sequence);
  // The tenant had this many tokens of service, whether it waits or not.
  void Charge(Tenant* tenant, uint64_t n_tokens);

  bool empty() const { return tenants_.empty(); }
  int32_t size() const { return n_sequences_; }
  // Those that never had a slot: what max_waiting bounds.
  int32_t n_new() const { return n_new_; }
  // Of their prompts: what max_waiting_tokens bounds.
  uint64_t n_new_tokens() const { return n_new_tokens_; }
  // Tokens; with what the prefix cache has of them where nothing asks for the number.
  uint64_t n_to_prefill() const { return n_to_prefill_; }
  // With a priority below, or above, 0.
  int32_t n_high() const { return n_high_; }
  int32_t n_low() const { return n_low_; }
  // REQUIRES: not empty.
  Sequence* first() const { return *(*tenants_.begin())->waiting.begin(); }

  using TenantSet = absl::btree_set<Tenant*, LeastServed>;
  const TenantSet& tenants() const { return tenants_; }  // that have somebody here

 private:
  void Count(const Sequence& sequence, int sign);

  TenantSet tenants_;
  uint64_t most_served_ = 0;
  int32_t n_sequences_ = 0;
  int32_t n_new_ = 0;
  uint64_t n_new_tokens_ = 0;
  int32_t n_high_ = 0;
  int32_t n_low_ = 0;
  uint64_t n_to_prefill_ = 0;
};

}  // namespace stagecoach::router
