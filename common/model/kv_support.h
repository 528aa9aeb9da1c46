// Which types the KV cache of a model can have.
#pragma once

#include "absl/status/status.h"
#include "common/dtype.h"
#include "common/model/model_spec.h"

namespace stagecoach {

// UNIMPLEMENTED, with one sentence for users, if no device stores the model's cache in that type.
absl::Status CheckKvDType(const ModelSpec& spec, DType kv_dtype);

}  // namespace stagecoach
