// Latent attention's own operations for ReferenceOps.
#pragma once

#include "kernels/op_args.h"

namespace stagecoach::kernels {

void ReferenceHeadGemm(const HeadGemmArgs& args);
void ReferenceLatentAppend(const LatentAppendArgs& args);

}  // namespace stagecoach::kernels
