#include <catch2/catch_approx.hpp>
#include <cmath>

#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Llama 4 Scout, as published: chunks, and layers without rotation") {
  const ModelSpec spec = *ReadShape("llama-4-scout");
  CHECK(spec.notes.size() == 1);
  REQUIRE(spec.kv_groups.size() == 2);
  CHECK(spec.kv_groups[static_cast<size_t>(spec.layers[0].kv_group)].window ==
        KeyWindow(8192, /*by_chunk=*/true));
  CHECK(spec.kv_groups[static_cast<size_t>(spec.layers[3].kv_group)].window == 0);
  CHECK((spec.layers[0].rope == 0 && spec.layers[3].rope == -1));
  CHECK((!spec.layers[0].scales_queries && spec.layers[3].scales_queries));
  CHECK(spec.query_scaling.At(8190) == 1);
  CHECK(spec.query_scaling.At(8191) == Approx(1 + 0.1 * std::log(2.0)));
  CHECK(spec.ropes[0].scaling == RopeScaling::kLlama3);
  CHECK((spec.plain_qk_norm && !spec.qk_norm && spec.neighbours_rotate));
  CHECK((spec.experts.scales_input && spec.experts.n_experts == 16 && spec.experts.n_used == 1));
  CHECK(spec.shared_expert.intermediate_size == 8192);
  CHECK(spec.mlp_width(spec.layers[0]) == 0);
}

TEST_CASE("Llama 4 Maverick, as published: experts in every other layer") {
  const ModelSpec spec = *ReadShape("llama-4-maverick");
  CHECK_FALSE(spec.plain_qk_norm);
  CHECK(spec.ropes[0].scaling == RopeScaling::kNone);
  CHECK((!spec.layers[0].has_experts && spec.layers[1].has_experts));
  CHECK((spec.mlp_width(spec.layers[0]) == 16384 && spec.mlp_width(spec.layers[1]) == 0));
}

TEST_CASE("Llama 4: defaults, older spellings and what is refused") {
  const auto llama4 = [](const std::string& keys) {
    return Config("Llama4ForCausalLM", R"("num_key_value_heads": 2,)" + keys);
  };
  const ModelSpec spec = MustRead(llama4(R"("attn_temperature_tuning": 0,)"));
  CHECK(spec.query_scaling.beta == 0);
  CHECK(spec.layers[0].rope == 0);
  // 64 positions are one chunk.
  CHECK((spec.kv_groups.size() == 1 && spec.kv_groups[0].window == 0));
  CHECK(MustRead(llama4(R"("attn_temperature_tuning": 4,)")).query_scaling.beta == 0.1f);
  CHECK_THAT(ErrorOf(llama4(R"("num_experts_per_tok": 2,)"), absl::StatusCode::kUnimplemented),
             ContainsSubstring("only one expert"));
  CHECK_THAT(ErrorOf(llama4(R"("no_rope_layers": [1],)"), absl::StatusCode::kInvalidArgument),
             ContainsSubstring("has 1 entries for"));
}

}  // namespace
}  // namespace stagecoach
