// The header of a .safetensors file. Format: 8 bytes header length, a JSON header of that length,
// then the data at the header's offsets (github.com/huggingface/safetensors). Everything in the
// header is checked before use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "worker/loader/tensor_file.h"

namespace stagecoach::worker {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's limit

// Error messages use `name`. INVALID_ARGUMENT names the file, the tensor and the problem: an
// invalid header, offsets that overlap or point outside, or a size that differs from shape times
// dtype.
absl::StatusOr<StoredTensors> ReadSafetensors(const std::string& name,
                                              std::span<const std::byte> bytes);

}  // namespace stagecoach::worker
