// The tensors of a GGUF file, under the file's own names ("blk.3.attn_q.weight"), which are also
// those of the ModelSpec that is read from it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "worker/loader/tensor_file.h"

namespace stagecoach::worker {

// `name` stands in messages. Errors as GgufFile::Parse().
absl::StatusOr<StoredTensors> ReadGgufTensors(const std::string& name,
                                              std::span<const std::byte> bytes);

}  // namespace stagecoach::worker
