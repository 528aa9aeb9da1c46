// Ops::Route and Ops::ExpertMlp: rows grouped by expert, then one expert after the other with the
// kernels for dense layers.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/cpu_target.h"

namespace stagecoach::kernels {

void CpuRoute(const RouteArgs& args, ThreadPool& pool);
size_t CpuExpertScratchBytes(const ExpertShape& shape);
// RESOURCE_EXHAUSTED when a kernel's own scratch cannot grow.
absl::Status CpuExpertMlp(const ExpertMlpArgs& args, const CpuKernels& kernels,
                          CpuContext& context);

}  // namespace stagecoach::kernels
