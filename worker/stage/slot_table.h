// What a stage knows of each sequence that holds KV, but for its block tables, which the model
// keeps on its device: tokens, the number of its blocks, sampling state. All of it can be rebuilt
// from a registration. Preallocated; pages are touched as sequences grow.
//
// Trusts its input: PlanChecker has seen every step before. One thread, but n_in_use().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "worker/stage/stage_limits.h"
#include "worker/stage/step_meta.h"

namespace stagecoach::worker {

// Sampling parameters of one sequence, and what they count.
struct SlotSamplingState {
  v1::SlotSampling sampling;     // its grammar is empty, but there if the sequence has one
  kernels::SampleParams params;  // of `sampling`
  uint32_t n_prompt = 0;
  std::vector<kernels::TokenCount> counts;  // by ascending id; empty unless a penalty is on

  bool has_penalties() const {
    return params.presence_penalty != 0 || params.frequency_penalty != 0 ||
           params.repetition_penalty != 1;
  }
};

class SlotTable {
 public:
  struct Needs {
    bool tokens = false;    // the first stage reads them, the last takes prompt log-probabilities
    bool sampling = false;  // the last stage
  };

  SlotTable(const StageLimits& limits, Needs needs);

  // Releases, registrations and new blocks of a step. sampling: by registration, and taken over;
  // read only with Needs::sampling.
  void Apply(const StepMetaView& meta, std::span<v1::SlotSampling> sampling);
  // Of the step applied last.
  std::span<const kernels::NewBlock> new_blocks() const { return new_blocks_; }

  // The token that `step` sampled for the slot. False, and nothing changes, when the slot was
  // registered anew or released since. INVALID_ARGUMENT for what no stage of this pipeline could
  // have sampled.
  absl::StatusOr<bool> AcceptToken(uint64_t step, uint32_t slot, int32_t token);

  // Known tokens, from position 0: registered, then sampled.
  std::span<const int32_t> tokens(uint32_t slot) const {
    return {token_row(slot), static_cast<size_t>(slots_[slot].n_tokens)};
  }
  const SlotSamplingState& sampling(uint32_t slot) const { return sampling_[slot]; }

  uint64_t n_in_use() const { return n_in_use_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    bool in_use = false;
    uint64_t registered_step = 0;
    int32_t n_tokens = 0;
  };

  void Register(const StepMetaView& meta, const SlotRecord& record, v1::SlotSampling* sampling);
  void Release(uint32_t slot);

  int32_t* token_row(uint32_t slot) const { return tokens_.get() + size_t{slot} * token_stride_; }
  int32_t& n_blocks(uint32_t slot, size_t group) {
    return n_blocks_[size_t{slot} * limits_.n_kv_groups + group];
  }

  const StageLimits limits_;
  const Needs needs_;
  const size_t token_stride_;  // max_model_len and the token sampled after its last position
  std::vector<Slot> slots_;
  std::vector<SlotSamplingState> sampling_;  // empty unless needed
  std::unique_ptr<int32_t[]> tokens_;        // [max_sequences, token_stride], or null
  std::vector<int32_t> n_blocks_;            // [max_sequences, n_kv_groups]
  std::vector<kernels::NewBlock> new_blocks_;
  std::atomic<uint64_t> n_in_use_{0};
};

}  // namespace stagecoach::worker
