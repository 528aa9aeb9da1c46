// Who may wait when the queue is full: each tenant has its share of it, by weight, of those that
// are active. What one holds beyond its share is lent, and goes when another comes below its own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

// Makes room for `n_sequences` of one call with prompts of `n_tokens` in all. For a tenant that
// stays within its share with them, ends calls of whoever has most beyond its own, of those that
// have not begun the last in the order of service, and adds their sequences to `evicted`.
// RESOURCE_EXHAUSTED: that was not enough, or the tenant has had its share.
absl::Status MakeQueueRoom(SchedulerState& state, const Account& account, size_t n_sequences,
                           uint64_t n_tokens, std::vector<std::shared_ptr<Sequence>>& evicted);

}  // namespace stagecoach::router
