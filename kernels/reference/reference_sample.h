// One row of Ops::Sample with a complete sort and double arithmetic: the oracle for the samplers.
#pragma once

#include <span>

#include "kernels/ops.h"

namespace stagecoach::kernels {

// logits: [vocab]
void ReferenceSampleRow(std::span<const float> logits, const SampleRow& row, SampledToken* out);

}  // namespace stagecoach::kernels
