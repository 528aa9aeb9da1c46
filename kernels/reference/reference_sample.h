// One row of Ops::Sample by full sort and double arithmetic.
#pragma once

#include <span>

#include "kernels/ops.h"

namespace stagecoach::kernels {

// logits: [vocab]
void ReferenceSampleRow(std::span<const float> logits, const SampleRow& row, SampledToken* out);

}  // namespace stagecoach::kernels
