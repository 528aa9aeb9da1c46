// Reads the pickle that torch.save writes next to a checkpoint's tensors, without executing any of
// it. A stack machine that knows containers, texts, numbers and the few functions that rebuild a
// tensor; it refuses everything else by name. Opcodes: Python's pickletools; protocol 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach::worker {

// A view of a storage, with the arguments of torch._utils._rebuild_tensor_v2.
struct PickledTensor {
  std::string_view element;  // "Float" for torch.FloatStorage, "float32" for a dtype
  std::string_view key;      // of the storage: a part of the archive
  int64_t offset = 0;        // elements
  std::vector<int64_t> shape, strides;
};

// The outermost dictionary of the pickle.
struct PickledDict {
  std::vector<std::pair<std::string_view, PickledTensor>> tensors;
  std::vector<std::string_view> others;  // keys of entries that are not tensors
};

inline constexpr size_t kMaxPickleBytes = 64 << 20;

// The results are views of `bytes`. Error messages use `name` ("x.bin: data.pkl").
// INVALID_ARGUMENT: not a pickle, or not a dictionary. PERMISSION_DENIED names a function that does
// not belong to tensors. UNIMPLEMENTED: another protocol or opcode.
absl::StatusOr<PickledDict> ReadPickledTensors(const std::string& name,
                                               std::span<const std::byte> bytes);

}  // namespace stagecoach::worker
