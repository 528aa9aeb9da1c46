// How many KV blocks the pipeline gets: the same virtual ids are valid on every stage, so the stage
// with the least room decides.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"

namespace stagecoach::router {

// What one stage said of its memory after loading.
struct StageKvMemory {
  std::string name;                   // for messages: "stage 1 (10.0.0.2:9100)"
  uint64_t kv_bytes = 0;              // what its KV cache may take
  std::vector<uint64_t> block_bytes;  // [KV group]; 0: the stage has no layer of the group
  // For messages, where kv_bytes is what a fraction of a device's memory leaves: that memory, and
  // what anything else takes of it.
  uint64_t device_bytes = 0, taken_bytes = 0;
};

struct KvSizingLimits {
  int32_t max_sequences = 0;
  int32_t max_batched_tokens = 0;  // of a step
  int32_t max_prefill_chunk = 0;   // of one sequence in a step
  int32_t max_model_len = 0;       // tokens
  // The user asked for max_model_len: it may not be lowered.
  bool max_model_len_is_fixed = false;
};

struct KvPlan {
  std::vector<uint64_t> n_blocks;  // [KV group]
  uint64_t kv_blocks = 0;          // of the widest group: the pool's size in the usual sense
  int32_t max_model_len = 0;  // tokens; as asked for, or what a sequence alone in the pool can have
};

// Gives the widest group (full attention, or the longest window) as many blocks as fit, and every
// other group what max_sequences sequences can hold at once behind its window and a step's chunks
// before it, or as many as the widest if that is less. RESOURCE_EXHAUSTED names the stage without
// room, or how many blocks a fixed max_model_len needs.
absl::StatusOr<KvPlan> SizeKv(std::span<const KvGroupSpec> groups,
                              std::span<const StageKvMemory> stages, const KvSizingLimits& limits);

}  // namespace stagecoach::router
