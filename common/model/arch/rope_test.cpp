#include <catch2/catch_approx.hpp>
#include <cmath>

#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

using Catch::Approx;

TEST_CASE("RoPE scaling in both spellings") {
  const char* const llama3_old =
      R"("rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 64},)";
  const char* const llama3_new =
      R"("rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 64},)";
  for (const char* spelling : {llama3_old, llama3_new}) {
    const ModelSpec spec = MustRead(Config("LlamaForCausalLM", spelling));
    CHECK(spec.ropes[0].theta == 500000.0);
    CHECK(spec.ropes[0].scaling == RopeScaling::kLlama3);
    CHECK(spec.ropes[0].factor == 8.0);
    CHECK(spec.ropes[0].original_max_positions == 64);
  }
  for (const char* spelling :
       {R"("rope_scaling": {"type": "linear", "factor": 4.0},)",
        R"("rope_theta": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 4},)",
        R"("rope_parameters": {"rope_theta": 10000.0, "rope_type": "linear", "factor": 4.0},)"}) {
    const ModelSpec spec = MustRead(Config("LlamaForCausalLM", spelling));
    CHECK(spec.ropes[0].theta == 10000.0);
    CHECK(spec.ropes[0].scaling == RopeScaling::kLinear);
    CHECK(spec.ropes[0].factor == 4.0);
  }
}

TEST_CASE("YaRN's attention factor") {
  const auto factor = [](std::string_view more) {
    return MustRead(Config("Qwen3ForCausalLM",
                           std::string(R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0,)") +
                               std::string(more) + R"("original_max_position_embeddings": 128},)"))
        .ropes.at(0)
        .attention_factor;
  };
  CHECK(factor("") == Approx(0.1 * std::log(4.0) + 1));
  CHECK(factor(R"("attention_factor": 1.25,)") == 1.25);
  CHECK(factor(R"("mscale": 0.7, "mscale_all_dim": 1.0,)") ==
        Approx((0.07 * std::log(4.0) + 1) / (0.1 * std::log(4.0) + 1)));
}

}  // namespace
}  // namespace stagecoach
