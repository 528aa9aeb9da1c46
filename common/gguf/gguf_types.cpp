#include "common/gguf/gguf_types.h"

#include <array>

#include "common/encoding/blocks.h"

namespace stagecoach::gguf {

std::optional<Code> CodeOf(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return Code::kF32;
    case TensorType::kF16:
      return Code::kF16;
    case TensorType::kBF16:
      return Code::kBF16;
    case TensorType::kQ4_0:
      return Code::kQ4_0;
    case TensorType::kQ5_0:
      return Code::kQ5_0;
    case TensorType::kQ8_0:
      return Code::kQ8_0;
    case TensorType::kQ4_K:
      return Code::kQ4_K;
    case TensorType::kQ5_K:
      return Code::kQ5_K;
    case TensorType::kQ6_K:
      return Code::kQ6_K;
    case TensorType::kIQ4_NL:
      return Code::kIQ4_NL;
    case TensorType::kIQ4_XS:
      return Code::kIQ4_XS;
  }
  return std::nullopt;
}

std::optional<BlockLayout> LayoutOf(TensorType type) {
  const std::optional<Code> code = CodeOf(type);
  if (!code) return std::nullopt;
  if (const std::optional<DType> plain = PlainDType(*code)) {
    return BlockLayout{1, static_cast<uint32_t>(DTypeBytes(*plain))};
  }
  return BlockLayout{static_cast<uint32_t>(FormOf(*code).elements),
                     static_cast<uint32_t>(BlockBytes(*code))};
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
