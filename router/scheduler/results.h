// Applies the result of a step to its sequences.
#pragma once

#include "absl/status/status.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

// Removes the oldest step in flight and hands its tokens to the sinks. Drops rows whose sequence
// has ended. INTERNAL if the result does not match that step's plan, which means that the last
// stage is broken.
absl::Status ApplyResult(SchedulerState& state, const v1::StepResult& result);

}  // namespace stagecoach::router
