// Whether a step makes sense after those before it: what a broken or foreign router could send ends
// the epoch with a status here and never reaches the layers. Every stage checks what it reads of a
// step, in step order, ahead of computing it. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/stage/stage_limits.h"
#include "worker/stage/step_meta.h"

namespace stagecoach::worker {

class PlanChecker {
 public:
  // kv_blocks: by KV group.
  PlanChecker(const StageLimits& limits, uint64_t epoch, std::vector<uint64_t> kv_blocks);

  // FAILED_PRECONDITION: another epoch, a gap in the steps, a slot that is not registered.
  // INVALID_ARGUMENT: values out of range, positions that do not follow. After an error the
  // checker is of no further use. `sampling`: by registration; empty on a stage that does not read
  // it.
  absl::Status Check(const StepMetaView& meta, std::span<const v1::SlotSampling> sampling);

 private:
  struct Slot {
    bool registered = false;
    uint64_t seen_in_step = 0;       // a slot computes once a step
    uint32_t n_computed = 0;         // positions
    uint32_t n_tokens = 0;           // registered, and sampled since
    bool begins_at_0 = false;        // may begin nowhere else
    bool has_state = false;          // begins with a saved recurrent state
    std::vector<uint32_t> n_blocks;  // by KV group
  };

  absl::Status CheckRelease(uint32_t slot);
  absl::Status CheckRegistration(const StepMetaView& meta, const SlotRecord& record);
  absl::Status CheckSampling(uint32_t slot, const v1::SlotSampling& sampling);
  absl::Status CheckPooling(uint32_t slot, const v1::SlotSampling& sampling);
  absl::Status CheckGrammar(uint32_t slot, const v1::SlotGrammar& grammar) const;
  absl::Status CheckSlot(const StepMetaView& meta, size_t i);
  absl::Status CheckBlocks(const StepMetaView& meta, size_t i, Slot& slot);
  absl::Status CheckKvCopies(const StepMetaView& meta) const;
  // `number`: of a saved state, plus 1; 0: none.
  absl::Status CheckState(uint32_t slot, uint32_t number) const;

  const StageLimits limits_;
  const uint64_t epoch_;
  const std::vector<uint64_t> kv_blocks_;
  std::vector<Slot> slots_;
  uint64_t step_ = 0;  // the last one checked
};

}  // namespace stagecoach::worker
