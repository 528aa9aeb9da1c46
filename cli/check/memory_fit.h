// Whether a model on CPUs fits into the memory of its machine.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "cli/check/model_report.h"

namespace stagecoach::check {

// INVALID_ARGUMENT if the weights of all replicas and `kv_bytes` for each stage (0: what is left)
// are more than `memory_bytes`. Swapping would make every token take seconds, and a cgroup's limit
// would kill a worker in the middle of its load.
absl::Status CheckMemoryFits(const ModelFacts& facts, uint32_t n_replicas, uint64_t kv_bytes,
                             uint64_t memory_bytes);

}  // namespace stagecoach::check
