// Mixture of experts: routing, and the experts' MLPs over rows grouped by expert on the device.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// See Ops::Route. Errors are launch errors.
cudaError_t Route(const Stream& stream, const RouteArgs& args);

// Bytes of ExpertMlpArgs::scratch for experts with weights of `dtype`.
size_t ExpertScratchBytes(const ExpertShape& shape, DType dtype);

// What kernels need to know about the matrices of a layer's experts, in device memory aligned to
// 256 bytes: their addresses, then their tensor maps. Fill writes [ExpertTableBytes] on the host.
// Returns cudaErrorNotSupported if the driver cannot encode maps.
size_t ExpertTableBytes(size_t n_matrices);
cudaError_t FillExpertTable(const Stream& stream, std::span<const Matrix> matrices,
                            unsigned char* table);

// See Ops::ExpertMlp. up, down: tables in device memory. At most kMaxExperts experts. If
// batch_invariant, a row's result does not depend on the number of rows. Errors are launch errors.
cudaError_t ExpertMlp(const Stream& stream, const ExpertMlpArgs& args, const void* const* up,
                      const void* const* down, bool batch_invariant);

}  // namespace stagecoach::kernels::cuda
