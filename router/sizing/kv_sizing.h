// Computes the number of KV blocks of the pipeline. The same virtual ids are valid on every stage,
// so the stage with the least memory decides.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"

namespace stagecoach::router {

// A stage's memory report after loading.
struct StageKvMemory {
  std::string name;                   // for messages: "stage 1 (10.0.0.2:9100)"
  uint64_t kv_bytes = 0;              // limit for its KV cache
  std::vector<uint64_t> block_bytes;  // [KV group]; 0: the stage has no layer of the group
  // For messages, if kv_bytes was derived from a fraction of the device's memory: the total device
  // memory, and the part of it that is used for anything else than the KV cache. Otherwise 0.
  uint64_t device_bytes = 0, taken_bytes = 0;
  uint64_t state_bytes = 0;  // a sequence's state in the stage's recurrent layers
};

struct KvSizingLimits {
  int32_t max_sequences = 0;
  int32_t max_batched_tokens = 0;  // per step
  int32_t max_prefill_chunk = 0;   // per sequence and step
  int32_t max_model_len = 0;       // tokens
  // The user set max_model_len, so it must not be lowered.
  bool max_model_len_is_fixed = false;
  bool saves_states = true;  // the prefix cache keeps recurrent states
};

struct KvPlan {
  std::vector<uint64_t> n_blocks;  // [KV group]
  uint64_t kv_blocks = 0;          // of the widest group: the pool size in the usual sense
  // Tokens; as requested, or the most that the whole pool can hold for one sequence.
  int32_t max_model_len = 0;
  // The number of sequences that may run at the same time. It is lower than requested if the states
  // of recurrent layers would take too much of the memory: each sequence has one. n_states counts
  // these and, after them, those that the prefix cache saves. 0: no layer is recurrent.
  int32_t max_sequences = 0;
  uint64_t n_states = 0;
};

// Gives the widest group (full attention, or the longest window) as many blocks as fit. Every other
// group gets the blocks that max_sequences sequences can hold at the same time, for their windows
// and the chunks of one step, but no more than the widest group. RESOURCE_EXHAUSTED names the stage
// without room, or the number of blocks that a fixed max_model_len needs. States of sequences take
// at most half of each stage's memory.
absl::StatusOr<KvPlan> SizeKv(std::span<const KvGroupSpec> groups,
                              std::span<const StageKvMemory> stages, const KvSizingLimits& limits);

}  // namespace stagecoach::router
