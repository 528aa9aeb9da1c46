// Mixture of experts: routing, and the experts' MLPs over rows grouped by expert on the device.
#pragma once

#include <cstddef>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// See Ops::Route. Errors are launch errors.
cudaError_t Route(const Stream& stream, const RouteArgs& args);

inline constexpr int32_t kMaxExperts = 1024;

// Bytes of ExpertMlpArgs::scratch for experts with weights of `dtype`.
size_t ExpertScratchBytes(const ExpertShape& shape, DType dtype);

// See Ops::ExpertMlp. up, down: device arrays with the addresses of the experts' matrices,
// [n_experts] each, n_experts <= kMaxExperts. Errors are launch errors.
cudaError_t ExpertMlp(const Stream& stream, const ExpertMlpArgs& args, const void* const* up,
                      const void* const* down);

}  // namespace stagecoach::kernels::cuda
