// The reference's operations for recurrent layers and gates.
#pragma once

#include "kernels/recurrent_args.h"

namespace stagecoach::kernels {

void ReferenceDeltaNet(const DeltaNetArgs& args);
void ReferenceSplitGate(const SplitGateArgs& args);
void ReferenceSigmoidGate(const SigmoidGateArgs& args);
void ReferenceCopyStates(const CopyStatesArgs& args);

}  // namespace stagecoach::kernels
