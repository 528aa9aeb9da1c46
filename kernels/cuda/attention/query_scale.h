// The factor of a query by its position.
#pragma once

#include "common/model/layer_kinds.h"

namespace stagecoach::kernels::cuda {

// QueryScaling::At on the device.
__device__ __forceinline__ float QueryScale(const QueryScaling& scaling, int32_t position) {
  if (scaling.beta == 0) return 1;
  return 1 + scaling.beta * log1pf(static_cast<float>((position + scaling.offset) / scaling.step));
}

}  // namespace stagecoach::kernels::cuda
