// A stage's state of each sequence that holds KV blocks: tokens, number of blocks, sampling state.
// The model keeps the block tables on its device. Everything can be rebuilt from a registration.
// Preallocated; memory pages are touched as sequences grow.
//
// Trusts its input, because PlanChecker has checked every step. Use from one thread, except
// n_in_use().
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mapped_pages.h"
#include "kernels/ops.h"
#include "worker/stage/stage_limits.h"
#include "worker/stage/step_meta.h"

namespace stagecoach::worker {

// Sampling parameters of one sequence, and the counts they need.
struct SlotSamplingState {
  // Its grammar is empty, but set if the sequence has one.
  v1::SlotSampling sampling;
  kernels::SampleParams params;  // from `sampling`
  uint32_t n_prompt = 0;
  std::vector<kernels::TokenCount> counts;  // ascending ids; empty if there are no penalties

  bool has_penalties() const {
    return params.presence_penalty != 0 || params.frequency_penalty != 0 ||
           params.repetition_penalty != 1;
  }
};

class SlotTable {
 public:
  struct Needs {
    bool tokens = false;    // first stage; last stage for prompt logprobs
    bool sampling = false;  // last stage
  };

  SlotTable(const StageLimits& limits, Needs needs);

  // Applies a step's releases, registrations and new blocks. `sampling`: by registration; read, and
  // moved from, only with Needs::sampling.
  void Apply(const StepMetaView& meta, std::span<v1::SlotSampling> sampling);
  // New blocks of the step applied last.
  std::span<const kernels::NewBlock> new_blocks() const { return new_blocks_; }

  // Adds the token that `step` sampled for the slot. Returns false without a change if the slot has
  // been released or registered again since. INVALID_ARGUMENT for a token that no stage of this
  // pipeline can have sampled.
  absl::StatusOr<bool> AcceptToken(uint64_t step, uint32_t slot, int32_t token);

  // Known tokens from position 0 on: first the registered ones, then the sampled ones.
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

  int32_t* token_row(uint32_t slot) const {
    return static_cast<int32_t*>(tokens_.get()) + size_t{slot} * token_stride_;
  }
  int32_t& n_blocks(uint32_t slot, size_t group) {
    return n_blocks_[size_t{slot} * limits_.n_kv_groups + group];
  }

  const StageLimits limits_;
  const Needs needs_;
  const size_t token_stride_;  // max_model_len + 1: a token is sampled after the last position
  std::vector<Slot> slots_;
  std::vector<SlotSamplingState> sampling_;  // empty unless needed
  MappedPages tokens_;                       // int32_t [max_sequences, token_stride], or null
  std::vector<int32_t> n_blocks_;            // [max_sequences, n_kv_groups]
  std::vector<kernels::NewBlock> new_blocks_;
  std::atomic<uint64_t> n_in_use_{0};
};

}  // namespace stagecoach::worker
