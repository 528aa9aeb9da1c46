#include "common/config/load_config.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach {
namespace {

TEST_CASE("the KV cache has the type of the weights, or its own") {
  v1::LoadConfig config;
  CHECK(KvDTypeOf(config, DType::kF16) == DType::kF16);
  config.set_dtype(v1::DTYPE_BFLOAT16);
  CHECK(KvDTypeOf(config, DType::kF16) == DType::kBF16);
  config.set_kv_dtype(v1::KV_DTYPE_FP8);
  CHECK(KvDTypeOf(config, DType::kF16) == DType::kFp8);
  CHECK(DTypeOf(config) == DType::kBF16);
}

TEST_CASE("values that exclude each other, or that a newer router sent, are refused") {
  v1::LoadConfig config;
  config.set_kv_dtype(v1::KV_DTYPE_FP8);
  config.set_quantize(v1::QUANTIZE_INT4);
  CHECK(CheckLoadConfig(config).ok());
  config.set_dtype(v1::DTYPE_BFLOAT16);
  CHECK(absl::IsInvalidArgument(CheckLoadConfig(config)));
  config.clear_dtype();
  config.set_kv_dtype(static_cast<v1::KvDType>(99));
  const absl::Status unknown = CheckLoadConfig(config);
  CHECK(absl::IsInvalidArgument(unknown));
  CHECK(unknown.message().find("kv_dtype 99") != absl::string_view::npos);
  config.clear_kv_dtype();
  config.set_hidden_dtype(static_cast<v1::HiddenDType>(99));
  CHECK(CheckLoadConfig(config).message().find("hidden_dtype 99") != absl::string_view::npos);
}

TEST_CASE("hidden states travel as float32, and only so with --batch-invariant") {
  v1::LoadConfig config;
  config.set_dtype(v1::DTYPE_BFLOAT16);
  CHECK(HiddenDTypeOf(config) == DType::kF32);
  CHECK(CheckBatchInvariant(config).ok());
  config.set_hidden_dtype(v1::HIDDEN_DTYPE_BFLOAT16);
  CHECK(HiddenDTypeOf(config) == DType::kBF16);
  CHECK(CheckLoadConfig(config).ok());
  CHECK(absl::IsInvalidArgument(CheckBatchInvariant(config)));
}

}  // namespace
}  // namespace stagecoach
