// Element types of tensors, on disk and in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stagecoach {

// kFp8: e4m3 codes with a scale per row. Only KV caches have it (common/kv_fp8.h); FP8 weights are
// an Encoding.
enum class DType : uint8_t { kF32, kBF16, kF16, kFp8 };

// kFp8: bytes of a code; scales take more.
constexpr size_t DTypeBytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : dtype == DType::kFp8 ? 1 : 2;
}

constexpr std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    case DType::kFp8:
      return "fp8";
  }
  return "?";
}

}  // namespace stagecoach
