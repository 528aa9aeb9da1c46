#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// See Ops::ExportKv and Ops::ImportKv. args.copies is in memory that the device reads, until the
// kernel is done; so is args.host. `sides` is that of RopeAppend. Both functions are asynchronous
// and return launch errors only.
cudaError_t ExportKv(const Stream& stream, const KvCopyArgs& args, const KvSides& sides);
cudaError_t ImportKv(const Stream& stream, const KvCopyArgs& args, const KvSides& sides);

}  // namespace stagecoach::kernels::cuda
