// Step inputs of devices whose memory is the host's.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "kernels/step_inputs.h"

namespace stagecoach::kernels {

// Pages are taken from the system when sequences first get there. RESOURCE_EXHAUSTED names the
// size.
absl::StatusOr<std::unique_ptr<StepInputs>> NewHostStepInputs(const StepLimits& limits);

// inputs: of NewHostStepInputs
void BuildHostStep(const StepBatch& batch, StepInputs* inputs);

// Of Ops::Sample, after `out` is complete: the tokens for the next step.
void KeepSampled(const SampleArgs& args);

}  // namespace stagecoach::kernels
