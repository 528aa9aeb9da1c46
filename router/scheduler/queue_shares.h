// Decides who may wait when the queue is full. Each active tenant has a share of the queue, by
// weight. Places that a tenant holds beyond its share are lent; the tenant loses them when a tenant
// below its share needs them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

// Makes room for one call with `n_sequences` sequences and `n_tokens` prompt tokens in total. If
// the tenant stays within its share with this call, ends calls of the tenant that is furthest
// beyond its own share: among its calls that have not begun, those that would be served last. Adds
// their sequences to `evicted`. RESOURCE_EXHAUSTED: this did not make enough room, or the tenant
// would exceed its share.
absl::Status MakeQueueRoom(SchedulerState& state, const Account& account, size_t n_sequences,
                           uint64_t n_tokens, std::vector<std::shared_ptr<Sequence>>& evicted);

}  // namespace stagecoach::router
