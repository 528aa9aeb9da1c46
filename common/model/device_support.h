// Which devices can run a model.
#pragma once

#include "absl/status/status.h"
#include "common/model/model_spec.h"

namespace stagecoach {

// UNIMPLEMENTED, with one sentence for users, if the model has a part or a size that only CPUs can
// compute.
absl::Status CheckRunsOnGpus(const ModelSpec& spec);

}  // namespace stagecoach
