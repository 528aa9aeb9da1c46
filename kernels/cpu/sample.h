// Ops::Sample on the CPU: one thread per row, without sorting the vocabulary.
#pragma once

#include "absl/status/status.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/sample_vector.h"

namespace stagecoach::kernels {

// Returns RESOURCE_EXHAUSTED if the scratch cannot grow.
absl::Status CpuSample(const SampleArgs& args, const SampleVector& vector, CpuContext& context);

}  // namespace stagecoach::kernels
