// Step inputs on the GPU. The host passes the changes and the split of attention; kernels compute
// the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/host_ring.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/step/hopper_works.h"
#include "kernels/cuda/step/step_kernels.h"
#include "kernels/step_inputs.h"

namespace stagecoach::kernels::cuda {

struct CudaStepInputs final : StepInputs {
  StepLimits limits;
  AttentionSetup setup;                // of the limits' heads
  std::vector<AttentionSetup> setups;  // per KV group
  HopperWorks::Setup works;
  GatheredKeys gathered{};  // gather buffer for HopperPlan
  AttentionMemory attention_memory{};
  int32_t max_part_states = 0;       // part states that fit into attention_memory
  std::vector<AttentionPlan> plans;  // per KV group
  Buffer memory;
  StepParams params{};   // addresses of all arrays
  int32_t max_seqs = 0;  // of the last built step, or of a recording of it

  RecurrencePlan recurrence() const { return {params.n_seqs_out, params.saves, max_seqs}; }
};

// fixed_units: see AttentionSetup.
absl::StatusOr<std::unique_ptr<CudaStepInputs>> NewCudaStepInputs(const Stream& stream,
                                                                  const StepLimits& limits,
                                                                  bool fixed_units);

// See Ops::AttentionScratchBytes.
size_t WantedScratchBytes(const Stream& stream, const StepLimits& limits, bool fixed_units);

class StepBuilder {
 public:
  // `stream` and `ring` must outlive the builder.
  StepBuilder(const Stream* stream, HostRing* ring) : stream_(stream), ring_(ring) {}

  // Queues the kernels that apply new blocks and build the rows and the plans. Errors are those of
  // CUDA.
  absl::Status Build(const StepBatch& batch, CudaStepInputs* inputs);

 private:
  absl::Status ApplyBlocks(const StepBatch& batch, CudaStepInputs* inputs);
  void FindAdopters(const StepBatch& batch, int32_t max_slots);
  void Plan(const StepBatch& batch, const CudaStepInputs& inputs);
  void PlanPrefill(const StepBatch& batch, const CudaStepInputs& inputs, size_t group);

  const Stream* const stream_;
  HostRing* const ring_;
  // State of the current step; members so that their memory is reused.
  std::vector<int32_t> starts_, row_seqs_, unit_starts_;
  std::vector<int32_t> first_new_blocks_;  // per slot: the lowest new block index; INT32_MAX: none
  std::vector<PlannedDecode> decodes_;
  std::vector<SeqSave> saves_;
  DecodeShape decode_shape_;
  std::vector<DecodeShare> shares_;
  std::vector<PrefillTile> tiles_;
  std::vector<int32_t> tile_rows_;      // per KV group: see AttentionPlan
  std::vector<PrefillShares> prefill_;  // per KV group
  HopperWorks works_;
};

}  // namespace stagecoach::kernels::cuda
