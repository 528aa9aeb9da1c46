// The tensors of a file that torch.save wrote (since torch 1.6): a zip archive of data.pkl, which
// says what there is, and one stored part for each storage.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "worker/loader/tensor_file.h"

namespace stagecoach::worker {

// `name` stands in messages. INVALID_ARGUMENT: cut short, or tensors outside their storages;
// PERMISSION_DENIED: holds other objects than tensors, named; UNIMPLEMENTED: a variant that
// torch.save does not write unless asked to. A view that is neither row-major nor column-major has
// no encoding.
absl::StatusOr<StoredTensors> ReadTorchTensors(const std::string& name,
                                               std::span<const std::byte> bytes);

}  // namespace stagecoach::worker
