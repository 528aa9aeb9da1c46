// Element types of tensors, on disk and in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stagecoach {

enum class DType : uint8_t { kF32, kBF16, kF16 };

constexpr size_t DTypeBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

constexpr std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
  }
  return "?";
}

}  // namespace stagecoach
