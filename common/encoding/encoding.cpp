#include "common/encoding/encoding.h"

#include <fmt/format.h>

namespace stagecoach {
namespace {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kF32:
      return DTypeName(DType::kF32);
    case Code::kBF16:
      return DTypeName(DType::kBF16);
    case Code::kF16:
      return DTypeName(DType::kF16);
    case Code::kQ8_0:
      return "Q8_0";
    case Code::kQ5_0:
      return "Q5_0";
    case Code::kQ4_0:
      return "Q4_0";
    case Code::kQ4_K:
      return "Q4_K";
    case Code::kQ5_K:
      return "Q5_K";
    case Code::kQ6_K:
      return "Q6_K";
    case Code::kIQ4_NL:
      return "IQ4_NL";
    case Code::kIQ4_XS:
      return "IQ4_XS";
    case Code::kFp8:
      return "FP8";
    case Code::kInt4:
      return "INT4";
    case Code::kInt8:
      return "INT8";
    case Code::kMxFp4:
      return "MXFP4";
    case Code::kNvFp4:
      return "NVFP4";
  }
  return "?";
}

}  // namespace

std::string EncodingName(const Encoding& encoding) {
  std::string name(CodeName(encoding.code));
  if (encoding.group > 0) {
    const bool is_block = encoding.code == Code::kFp8 && encoding.rows_share_scales;
    name += fmt::format(" in {} of {}", is_block ? "blocks" : "groups", encoding.group);
  }
  if (encoding.has_zeros) name += " with zeros";
  return name;
}

}  // namespace stagecoach
