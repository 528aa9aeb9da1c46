#include "common/model/kv_support.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach {
namespace {

TEST_CASE("latents have the type of the weights; keys and values may be FP8") {
  ModelSpec spec;
  CHECK(CheckKvDType(spec, DType::kFp8).ok());
  spec.latent.emplace();
  CHECK(CheckKvDType(spec, DType::kBF16).ok());
  const absl::Status status = CheckKvDType(spec, DType::kFp8);
  CHECK(absl::IsUnimplemented(status));
  CHECK(status.message().find("--kv-dtype") != absl::string_view::npos);
}

TEST_CASE("heads in FP8 have whole words of codes") {
  ModelSpec spec;
  spec.kv_groups.resize(1);
  spec.head_dim = 80;
  CHECK(CheckKvDType(spec, DType::kFp8).ok());
  spec.head_dim = 10;
  CHECK(CheckKvDType(spec, DType::kBF16).ok());
  CHECK(CheckKvDType(spec, DType::kFp8).message().find("size of 10") != absl::string_view::npos);
}

}  // namespace
}  // namespace stagecoach
