#include "router/scheduler/waiting_queue.h"

#include <algorithm>

#include "common/check.h"

namespace stagecoach::router {

void WaitingQueue::Add(Sequence* sequence) {
  Tenant* tenant = sequence->tenant;
  if (tenant->waiting.empty()) {
    const uint64_t level = tenants_.empty() ? most_served_ : (*tenants_.begin())->service;
    tenant->service = std::max(tenant->service, level);
    if (tenant->n_running == 0) tenant->turn = tenant->service;
    tenants_.insert(tenant);
  }
  SC_CHECK(tenant->waiting.insert(sequence).second);
  ++n_sequences_;
  Count(*sequence, 1);
  n_to_prefill_ += sequence->n_to_prefill;
}

void WaitingQueue::Remove(Sequence* sequence) {
  Tenant* tenant = sequence->tenant;
  SC_CHECK(tenant->waiting.erase(sequence) == 1);
  if (tenant->waiting.empty()) {
    SC_CHECK(tenants_.erase(tenant) == 1);
    tenant->refused_at.reset();
  }
  --n_sequences_;
  Count(*sequence, -1);
  n_to_prefill_ -= sequence->n_to_prefill;
}

void WaitingQueue::AddLoading(Sequence* sequence) {
  SC_CHECK(sequence->tenant->loading.insert(sequence).second);
  ++n_loading_;
  Count(*sequence, 1);
}

void WaitingQueue::RemoveLoading(Sequence* sequence) {
  SC_CHECK(sequence->tenant->loading.erase(sequence) == 1);
  --n_loading_;
  Count(*sequence, -1);
}

void WaitingQueue::AddToken(Sequence* sequence) {
  ++sequence->n_to_prefill;
  ++n_to_prefill_;
}

void WaitingQueue::Charge(Tenant* tenant, uint64_t n_tokens) {
  const bool moves = tenants_.size() > 1 && !tenant->waiting.empty();
  if (moves) tenants_.erase(tenant);
  tenant->service += n_tokens * Tenant::kServiceUnit / tenant->weight;
  tenant->n_computed += n_tokens;
  if (moves) tenants_.insert(tenant);
  most_served_ = std::max(most_served_, tenant->service);
}

void WaitingQueue::Count(const Sequence& sequence, int sign) {
  if (!sequence.was_admitted) {
    n_new_ += sign;
    n_new_tokens_ += sign * uint64_t{sequence.n_prompt};
    sequence.tenant->n_new += sign;
    sequence.tenant->n_new_tokens += sign * uint64_t{sequence.n_prompt};
  }
  const int32_t priority = sequence.request->priority;
  if (priority < 0) n_high_ += sign;
  if (priority > 0) n_low_ += sign;
}

}  // namespace stagecoach::router
