// Type numbers of the GGUF format (github.com/ggml-org/ggml/blob/master/docs/gguf.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/encoding/encoding.h"

namespace stagecoach::gguf {

enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Tensor types that can be served. A file with other types is refused.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ5_0 = 6,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
};

// `elements` consecutive elements of a row share `bytes` bytes.
struct BlockLayout {
  uint32_t elements;
  uint32_t bytes;
};

// Empty for a type that is not in TensorType.
std::optional<BlockLayout> LayoutOf(TensorType type);

// Empty for a type that is not in TensorType.
std::optional<Code> CodeOf(TensorType type);

// Returns "Q4_K", for example, also for types that cannot be served.
std::string_view TensorTypeName(TensorType type);

}  // namespace stagecoach::gguf
