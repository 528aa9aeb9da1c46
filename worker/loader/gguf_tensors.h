// The tensors of a GGUF file under the file's own names ("blk.3.attn_q.weight"). The ModelSpec read
// from the same file uses these names.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "worker/loader/tensor_file.h"

namespace stagecoach::worker {

// Error messages use `name`. Errors: as for GgufFile::Parse().
absl::StatusOr<StoredTensors> ReadGgufTensors(const std::string& name,
                                              std::span<const std::byte> bytes);

}  // namespace stagecoach::worker
