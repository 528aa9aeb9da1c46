#include "common/config/load_config.h"

#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>

namespace stagecoach {
namespace {

absl::Status UnknownHere(const char* name, int value) {
  return absl::InvalidArgumentError(fmt::format(
      "{} {} is unknown here: run the same version on router and workers", name, value));
}

}  // namespace

std::optional<DType> DTypeOf(const v1::LoadConfig& config) {
  switch (config.dtype()) {
    case v1::DTYPE_FLOAT32:
      return DType::kF32;
    case v1::DTYPE_BFLOAT16:
      return DType::kBF16;
    case v1::DTYPE_FLOAT16:
      return DType::kF16;
    default:
      return std::nullopt;
  }
}

DType KvDTypeOf(const v1::LoadConfig& config, DType stored) {
  return config.kv_dtype() == v1::KV_DTYPE_FP8 ? DType::kFp8 : DTypeOf(config).value_or(stored);
}

DType HiddenDTypeOf(const v1::LoadConfig& config) {
  return config.hidden_dtype() == v1::HIDDEN_DTYPE_BFLOAT16 ? DType::kBF16 : DType::kF32;
}

v1::DType ToProto(std::optional<DType> dtype) {
  if (!dtype) return v1::DTYPE_UNSPECIFIED;
  switch (*dtype) {
    case DType::kF32:
      return v1::DTYPE_FLOAT32;
    case DType::kBF16:
      return v1::DTYPE_BFLOAT16;
    case DType::kF16:
      return v1::DTYPE_FLOAT16;
    case DType::kFp8:  // never of weights
      break;
  }
  return v1::DTYPE_UNSPECIFIED;
}

std::optional<Code> QuantizeTo(const v1::LoadConfig& config) {
  switch (config.quantize()) {
    case v1::QUANTIZE_FP8:
      return Code::kFp8;
    case v1::QUANTIZE_INT8:
      return Code::kInt8;
    case v1::QUANTIZE_INT4:
      return Code::kInt4;
    default:
      return std::nullopt;
  }
}

absl::Status CheckLoadConfig(const v1::LoadConfig& config) {
  if (config.quantize() != v1::QUANTIZE_NONE && config.dtype() != v1::DTYPE_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        "--quantize and --dtype both say how weights are kept: leave one of them out");
  }
  if (!v1::KvDType_IsValid(config.kv_dtype())) {
    return UnknownHere("kv_dtype", static_cast<int>(config.kv_dtype()));
  }
  if (!v1::HiddenDType_IsValid(config.hidden_dtype())) {
    return UnknownHere("hidden_dtype", static_cast<int>(config.hidden_dtype()));
  }
  return absl::OkStatus();
}

absl::Status CheckBatchInvariant(const v1::LoadConfig& config) {
  if (HiddenDTypeOf(config) == DType::kF32) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--hidden-dtype bfloat16 rounds where one stage ends, so tokens depend on the number of "
      "stages, and --batch-invariant says that they do not: leave one of the two out");
}

bool v1::operator==(const LoadConfig& a, const LoadConfig& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

}  // namespace stagecoach
