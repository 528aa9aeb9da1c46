// The tensors of a file written by torch.save (since torch 1.6): a zip archive with data.pkl, which
// describes the content, and one uncompressed part per storage.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "worker/loader/tensor_file.h"

namespace stagecoach::worker {

// Error messages use `name`. INVALID_ARGUMENT: truncated, or tensors outside their storages.
// PERMISSION_DENIED names objects in the file that are not tensors. UNIMPLEMENTED: a variant that
// torch.save writes only on request. A view that is neither row-major nor column-major has no
// encoding.
absl::StatusOr<StoredTensors> ReadTorchTensors(const std::string& name,
                                               std::span<const std::byte> bytes);

}  // namespace stagecoach::worker
