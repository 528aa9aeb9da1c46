#include "common/gguf/gguf_types.h"

#include <array>

namespace stagecoach::gguf {

std::optional<BlockLayout> LayoutOf(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return BlockLayout{1, 4};
    case TensorType::kF16:
    case TensorType::kBF16:
      return BlockLayout{1, 2};
    case TensorType::kQ4_0:
      return BlockLayout{32, 2 + 16};
    case TensorType::kQ5_0:
      return BlockLayout{32, 2 + 4 + 16};
    case TensorType::kQ8_0:
      return BlockLayout{32, 2 + 32};
    case TensorType::kQ4_K:
      return BlockLayout{256, 4 + 12 + 128};
    case TensorType::kQ5_K:
      return BlockLayout{256, 4 + 12 + 32 + 128};
    case TensorType::kQ6_K:
      return BlockLayout{256, 128 + 64 + 16 + 2};
  }
  return std::nullopt;
}

std::optional<DType> PlainDType(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return DType::kF32;
    case TensorType::kBF16:
      return DType::kBF16;
    case TensorType::kF16:
      return DType::kF16;
    default:
      return std::nullopt;
  }
}

TensorType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return TensorType::kF32;
    case DType::kBF16:
      return TensorType::kBF16;
    case DType::kF16:
      return TensorType::kF16;
  }
  return TensorType::kF32;
}

std::string_view TensorTypeName(TensorType type) {
  static constexpr std::array<std::string_view, 41> kNames = {
      "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
      "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
      "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
      "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
      "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
      "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4"};
  const uint32_t number = static_cast<uint32_t>(type);
  return number < kNames.size() ? kNames[number] : "an unknown type";
}

}  // namespace stagecoach::gguf
