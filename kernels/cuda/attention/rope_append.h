#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// See Ops::RopeAppend. qkv has the cache's dtype. The cache is row-major, [n_blocks, n_kv_heads,
// kBlockTokens, head_dim], except for the rows that KvSides swaps. A row with a negative kv_slot is
// padding and writes nothing to the cache. k in qkv is only overwritten by norms over all heads.
cudaError_t RopeAppend(const Stream& stream, const RopeAppendArgs& args, const KvSides& sides);

}  // namespace stagecoach::kernels::cuda
