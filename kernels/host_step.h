// Step inputs for devices that share the host's memory.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "kernels/step_inputs.h"

namespace stagecoach::kernels {

// The OS maps pages of the block tables on first use, so the unused part of a table costs no
// memory. RESOURCE_EXHAUSTED states the size.
absl::StatusOr<std::unique_ptr<StepInputs>> NewHostStepInputs(const StepLimits& limits);

// `inputs` comes from NewHostStepInputs.
void BuildHostStep(const StepBatch& batch, StepInputs* inputs);

// Call at the end of Ops::Sample, when `out` is complete: stores the drawn tokens for the next
// step.
void KeepSampled(const SampleArgs& args);

}  // namespace stagecoach::kernels
