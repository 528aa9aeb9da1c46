#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// As Ops::RopeAppend; qkv has the cache's dtype. The cache is row-major: [n_blocks, n_kv_heads,
// kBlockTokens, head_dim], less what KvSides exchanges. A row whose kv_slot is negative is padding:
// nothing is kept of it. k is not rewritten.
cudaError_t RopeAppend(const Stream& stream, const RopeAppendArgs& args, const KvSides& sides);

}  // namespace stagecoach::kernels::cuda
