// Reads the pickle that torch.save writes beside a checkpoint's tensors, without executing any of
// it: a stack machine that knows containers, texts, numbers and the few functions that rebuild a
// tensor, and refuses everything else by name. Opcodes: Python's pickletools; protocol 2.
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

// A view of a storage: what torch._utils._rebuild_tensor_v2 was given.
struct PickledTensor {
  std::string_view element;  // "Float" of torch.FloatStorage, "float32" of a dtype
  std::string_view key;      // the storage's, a part of the archive
  int64_t offset = 0;        // elements
  std::vector<int64_t> shape, strides;
};

// The outermost dictionary of the pickle.
struct PickledDict {
  std::vector<std::pair<std::string_view, PickledTensor>> tensors;
  std::vector<std::string_view> others;  // keys of what is no tensor
};

inline constexpr size_t kMaxPickleBytes = 64 << 20;

// Views of `bytes`. `name` ("x.bin: data.pkl") stands in messages. INVALID_ARGUMENT: no pickle, or
// no dictionary; PERMISSION_DENIED names a function that is not a tensor's; UNIMPLEMENTED: another
// protocol or opcode.
absl::StatusOr<PickledDict> ReadPickledTensors(const std::string& name,
                                               std::span<const std::byte> bytes);

}  // namespace stagecoach::worker
