// The sequences without a slot. Those that load count as waiting for the queue's limits, but are
// not served. The tenant with the least service for its weight comes first; within a tenant, its
// order of service applies. Operations are O(log n) in the tenant's sequences and in the waiting
// tenants.
//
// A tenant earns no credit while it has nothing waiting. When its first sequence arrives, its
// counter is lifted to that of the least served waiting tenant, or, if nobody waits, to the highest
// counter of all tenants.
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
  // REQUIRES: it is in the queue, and n_to_prefill is what Add and AddToken counted.
  void Remove(Sequence* sequence);
  // A sequence waits for blocks from the KV store. It enters the queue after RemoveLoading.
  void AddLoading(Sequence* sequence);
  void RemoveLoading(Sequence* sequence);
  // A waiting sequence has one more token to prefill.
  void AddToken(Sequence* sequence);
  // Charges the tenant for this many tokens of service, whether it waits or not.
  void Charge(Tenant* tenant, uint64_t n_tokens);

  bool empty() const { return tenants_.empty(); }
  int32_t size() const { return n_sequences_; }
  int32_t n_loading() const { return n_loading_; }
  // Sequences that never had a slot, also those that load; max_waiting limits this.
  int32_t n_new() const { return n_new_; }
  // Prompt tokens of these; max_waiting_tokens limits this.
  uint64_t n_new_tokens() const { return n_new_tokens_; }
  // Tokens to prefill. If PrefillBudget::Counts is false, this includes tokens that the prefix
  // cache holds, because nothing reads the number then.
  uint64_t n_to_prefill() const { return n_to_prefill_; }
  // Sequences with a priority below, or above, 0, also those that load.
  int32_t n_high() const { return n_high_; }
  int32_t n_low() const { return n_low_; }
  // REQUIRES: not empty.
  Sequence* first() const { return *(*tenants_.begin())->waiting.begin(); }

  using TenantSet = absl::btree_set<Tenant*, LeastServed>;
  const TenantSet& tenants() const { return tenants_; }  // tenants with a waiting sequence

 private:
  // Counts it as one without a slot.
  void Count(const Sequence& sequence, int sign);

  TenantSet tenants_;
  uint64_t most_served_ = 0;
  int32_t n_sequences_ = 0;
  int32_t n_loading_ = 0;
  int32_t n_new_ = 0;
  uint64_t n_new_tokens_ = 0;
  int32_t n_high_ = 0;
  int32_t n_low_ = 0;
  uint64_t n_to_prefill_ = 0;
};

}  // namespace stagecoach::router
