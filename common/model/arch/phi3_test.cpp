#include <catch2/catch_approx.hpp>
#include <cmath>

#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Phi-3: fused tensors, per-frequency factors in both spellings") {
  const char* const old_spelling =
      R"("original_max_position_embeddings": 64, "partial_rotary_factor": 0.25,
         "rope_scaling": {"type": "su", "short_factor": [1, 1.5, 1, 1], "long_factor": [2, 3, 4, 5]},)";
  const char* const new_spelling =
      R"("original_max_position_embeddings": 64,
         "rope_parameters": {"rope_type": "longrope", "short_factor": [1, 1.5, 1, 1],
            "long_factor": [2, 3, 4, 5], "partial_rotary_factor": 0.25, "rope_theta": 10000.0,
            "original_max_position_embeddings": 64},)";
  for (const char* spelling : {old_spelling, new_spelling}) {
    const ModelSpec spec = MustRead(Config("Phi3ForCausalLM", spelling));
    CHECK(spec.names.qkv == "model.layers.{}.self_attn.qkv_proj");
    CHECK(spec.names.gate_up == "model.layers.{}.mlp.gate_up_proj");
    const RopeSpec& rope = spec.ropes.at(0);
    CHECK(rope.scaling == RopeScaling::kLongRope);
    CHECK(rope.rotary_dim == 8);
    CHECK(rope.original_max_positions == 64);
    CHECK(rope.attention_factor == Approx(std::sqrt(1 + std::log(8.0) / std::log(64.0))));
    CHECK(rope.short_factors == std::vector<double>{1, 1.5, 1, 1});
    CHECK(rope.long_factors == std::vector<double>{2, 3, 4, 5});
  }
  const std::string text = ErrorOf(
      Config("Phi3ForCausalLM",
             R"("rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": 2},)"),
      absl::StatusCode::kInvalidArgument);
  CHECK_THAT(text, ContainsSubstring("short_factor: has 1 entries for the 16 frequencies") &&
                       ContainsSubstring("long_factor: 2 is not a list"));
  CHECK_THAT(ErrorOf(Config("Phi3ForCausalLM", R"("partial_rotary_factor": 0.1,)"),
                     absl::StatusCode::kInvalidArgument),
             ContainsSubstring("partial_rotary_factor: 0.1 of a head of 32"));
}

}  // namespace
}  // namespace stagecoach
