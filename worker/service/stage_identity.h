// What decides the bytes of a stage's weights and KV cache.
#pragma once

#include <string>

#include "kernels/ops.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::worker {

// Equal for two processes only if they run the same program on the same kind of device, and load
// the same layers of the same files in the same way. A file that was written or replaced since is
// another one.
std::string StageIdentity(const v1::LoadRequest& request, const kernels::Ops& ops);

}  // namespace stagecoach::worker
