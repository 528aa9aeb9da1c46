// Experts' MLPs for so few rows that hardly two of them share an expert: each pair of a row and an
// expert reads the expert's weights for itself, and no pairs are sorted. The bandwidth for reading
// weights is the limit.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Whether the kernels support these, and reading weights once per pair costs little. 16-bit
// weights without biases and clamped activations; hidden and width are multiples of 8.
bool SuitFewTokens(const ExpertMlpArgs& args);

// See ExpertMlp in experts.h. activated: [n_tokens * n_used, width] of x's dtype, device memory.
// Sums are added in another order than in GEMMs of many rows. The input of the activation and its
// result are rounded as there. REQUIRES: SuitFewTokens.
cudaError_t FewTokensExpertMlp(const Stream& stream, const ExpertMlpArgs& args,
                               const void* const* up, const void* const* down, void* activated);

}  // namespace stagecoach::kernels::cuda
