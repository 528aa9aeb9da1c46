// Ops::Route and Ops::ExpertMlp: groups rows by expert, then runs the dense kernels for one expert
// after another.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/cpu_target.h"

namespace stagecoach::kernels {

void CpuRoute(const RouteArgs& args, ThreadPool& pool);
size_t CpuExpertScratchBytes(const ExpertShape& shape);
// Returns RESOURCE_EXHAUSTED if a kernel's scratch cannot grow.
absl::Status CpuExpertMlp(const ExpertMlpArgs& args, const CpuKernels& kernels,
                          CpuContext& context);

}  // namespace stagecoach::kernels
