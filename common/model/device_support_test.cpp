#include "common/model/device_support.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace stagecoach {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("a model with parts that only CPUs compute is refused on GPUs, with their names") {
  ModelSpec spec{.architecture = "GptOssForCausalLM"};
  CHECK(CheckRunsOnGpus(spec).ok());
  spec.clamped_glu.limit = 7;
  spec.experts.biases = true;
  const absl::Status status = CheckRunsOnGpus(spec);
  CHECK(absl::IsUnimplemented(status));
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring("GptOssForCausalLM runs on CPUs only") &&
                 ContainsSubstring("clamped activations, experts with biases"));
  spec = {.recurrent = RecurrentSpec{}};
  CHECK_THAT(std::string(CheckRunsOnGpus(spec).message()), ContainsSubstring("recurrent layers"));
}

}  // namespace
}  // namespace stagecoach
