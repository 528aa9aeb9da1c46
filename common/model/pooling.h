// The files of sentence-transformers, which say how a checkpoint's hidden states become a vector:
// modules.json lists the steps, 1_Pooling/config.json says which positions count.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"

namespace stagecoach {

// Absent: the folder has no modules.json, or one without a pooling step, such as a reranker's; the
// model then generates text. UNIMPLEMENTED names a step or a kind of pooling that is not offered.
absl::StatusOr<std::optional<PoolingSpec>> ReadPooling(const std::string& model_dir);

}  // namespace stagecoach
