// The header of a .safetensors file. Format: 8 bytes header length, a JSON header of that length,
// then the data that the header's offsets point into (github.com/huggingface/safetensors).
// Everything in the header is checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "worker/loader/tensor_file.h"

namespace stagecoach::worker {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

// `name` stands in messages. INVALID_ARGUMENT names the file, the tensor and what is wrong: a
// header that is no header, offsets that overlap or point outside, a size that is not shape times
// dtype.
absl::StatusOr<StoredTensors> ReadSafetensors(const std::string& name,
                                              std::span<const std::byte> bytes);

}  // namespace stagecoach::worker
