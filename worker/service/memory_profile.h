// The largest steps that a stage may meet, run once before it serves: what they take shows in the
// report, what would fail later fails now, and a device that chooses among several ways to do a
// thing tries them.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "stagecoach/v1/stage.pb.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

struct ProfileLimits {
  int32_t max_batched_tokens = 0;
  int32_t max_sequences = 0;
  int32_t max_model_len = 0;     // tokens
  uint64_t kv_memory_bytes = 0;  // 0: decide from what is free
  double memory_fraction = 0;    // of a device's own memory, for all that this worker takes; 0: 0.9
  int32_t n_local_workers = 1;
  int32_t n_links = 0;  // communicators that come later
};

// Runs steps from max_batched_tokens rows down to one over a small temporary KV cache, on the last
// stage with logits for as many rows as it takes at once, then says what is left for the KV cache.
// A device without memory of its own runs the largest one only. RESOURCE_EXHAUSTED: the KV memory
// does not hold one block of each group; names what would do, where it is known.
absl::StatusOr<v1::MemoryReport> ProfileMemory(StageModel& model, kernels::Ops& ops, bool is_last,
                                               const ProfileLimits& limits);

}  // namespace stagecoach::worker
