// The reference's operations for recurrent layers and gates.
#pragma once

#include "kernels/recurrent_args.h"

namespace stagecoach::kernels {

void ReferenceRecurrence(const RecurrenceArgs& args);
void ReferenceSplitGate(const SplitGateArgs& args);
void ReferenceSigmoidGate(const SigmoidGateArgs& args);
void ReferenceCopyStates(const CopyStatesArgs& args);

}  // namespace stagecoach::kernels
