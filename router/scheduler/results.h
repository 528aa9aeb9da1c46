// What a step's result means for its sequences.
#pragma once

#include "absl/status/status.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

// Takes the oldest step off what is in flight and hands its tokens to the sinks. Rows whose
// sequence has ended are dropped. INTERNAL when the result does not answer that step's plan: the
// last stage is broken.
absl::Status ApplyResult(SchedulerState& state, const v1::StepResult& result);

}  // namespace stagecoach::router
