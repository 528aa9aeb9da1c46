// Configurations of models with latent attention.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <cmath>

#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("GLM-4.7-Flash, as published: DeepSeek's attention with scores that are not stretched") {
  const ModelSpec spec = *ReadShape("glm-4.7-flash");
  REQUIRE(spec.latent.has_value());
  CHECK(spec.latent.value_or(LatentSpec{}).q_rank == 768);
  CHECK(spec.attn_scale == Approx(1 / std::sqrt(256.0)));
  CHECK(spec.norm_eps == 1e-5);
  CHECK((!spec.layers[0].has_experts && spec.layers[1].has_experts));
  CHECK((spec.n_layers() == 47 && spec.n_unused_layers == 1));
}

TEST_CASE("GLM-4.7-Flash: each layer has a known type of MLP") {
  constexpr std::string_view kSizes =
      R"("q_lora_rank": 16, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
         "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 2,
         "moe_intermediate_size": 8, )";
  const auto error = [&](const std::string& types, absl::StatusCode code) {
    return ErrorOf(
        Config("Glm4MoeLiteForCausalLM", fmt::format(R"({}"mlp_layer_types": {},)", kSizes, types)),
        code);
  };
  CHECK_THAT(error(R"(["dense"])", absl::StatusCode::kInvalidArgument),
             ContainsSubstring("mlp_layer_types: has 1 entries for"));
  CHECK_THAT(error(R"(["dense", "thin", "sparse", "sparse"])", absl::StatusCode::kUnimplemented),
             ContainsSubstring("layer 1 is a \"thin\" layer"));
}

TEST_CASE("DeepSeek V2-Lite, as published: queries are not compressed") {
  const ModelSpec spec = *ReadShape("deepseek-v2-lite");
  REQUIRE(spec.latent.has_value());
  const LatentSpec latent = spec.latent.value_or(LatentSpec{});
  CHECK((latent.q_rank == 0 && latent.kv_rank == 512 && latent.interleaved));
  CHECK(latent.q == "model.layers.{}.self_attn.q_proj");
  const HeadShape heads = spec.heads(spec.layers[0]);
  CHECK((heads.n_kv_heads == 1 && heads.head_dim == 576 && heads.value_dim == 512));
  CHECK(heads.kv_of_row == KvOfRow::kLatents);
  CHECK(spec.ropes[0].rotary_dim == 64);
  CHECK(spec.ropes[0].attention_factor == Approx(1));  // mscale is mscale_all_dim
  const double mscale = 0.1 * 0.707 * std::log(40.0) + 1;
  CHECK(spec.attn_scale == Approx(mscale * mscale / std::sqrt(192.0)));
  CHECK((!spec.layers[0].has_experts && spec.layers[1].has_experts));
  CHECK(spec.shared_expert.intermediate_size == 2816);
  CHECK((!spec.experts.sigmoid && !spec.experts.weights_over_used));
  CHECK(spec.experts.softmax_groups.n_groups == 1);
}

TEST_CASE("DeepSeek V3 and Kimi K2, as published") {
  const ModelSpec v3 = *ReadShape("deepseek-v3");
  CHECK(v3.latent.value_or(LatentSpec{}).q_rank == 1536);
  CHECK(v3.n_unused_layers == 1);
  CHECK((!v3.layers[2].has_experts && v3.layers[3].has_experts));
  const SigmoidRouting routing = v3.experts.sigmoid.value_or(SigmoidRouting{});
  CHECK((routing.n_groups == 8 && routing.n_used_groups == 4 && routing.factor == 2.5f));
  CHECK(v3.quantization.method == QuantMethod::kFp8);
  CHECK(v3.WeightsOfEveryRow(v3.layers[0]) == Approx(187.1e6 + 3.0 * 7168 * 18432).epsilon(1e-3));
  const ModelSpec k2 = *ReadShape("kimi-k2");
  CHECK((k2.experts.n_experts == 384 && k2.n_heads == 64));
  CHECK((k2.experts.sigmoid && k2.experts.sigmoid->n_groups == 1));
  CHECK((k2.ropes[0].beta_fast == 1 && k2.ropes[0].factor == 32));
}

TEST_CASE("Mistral Small 4, as published: latent attention, and queries scaled by position") {
  const ModelSpec spec = *ReadShape("mistral-small-4");
  CHECK(spec.architecture == "Mistral3ForConditionalGeneration");
  CHECK(spec.notes.size() == 1);
  CHECK(spec.quantization.method == QuantMethod::kFp8);
  const LatentSpec latent = spec.latent.value_or(LatentSpec{});
  CHECK((latent.q_rank == 1024 && latent.kv_rank == 256 && latent.interleaved));
  CHECK((latent.nope_dim == 64 && latent.rope_dim == 64 && latent.value_dim == 128));
  // partial_rotary_factor is half of a head, not of its rotated part.
  CHECK((spec.ropes[0].rotary_dim == 64 && spec.ropes[0].attention_factor == Approx(1)));
  const double mscale = 0.1 * std::log(128.0) + 1;
  CHECK(spec.attn_scale == Approx(mscale * mscale / std::sqrt(128.0)));
  CHECK((spec.query_scaling.beta == 0.1f && spec.query_scaling.step == 8192));
  CHECK(std::all_of(spec.layers.begin(), spec.layers.end(),
                    [](const LayerSpec& l) { return l.scales_queries && l.has_experts; }));
  CHECK((spec.experts.n_experts == 128 && spec.experts.n_used == 4));
  CHECK((!spec.experts.sigmoid && spec.experts.weights_over_used));
  CHECK(spec.shared_expert.intermediate_size == 2048);
  // 119 billion with embedding and head.
  CHECK(36 * (spec.WeightsOfExperts() + spec.WeightsOfEveryRow(spec.layers[0])) ==
        Approx(119e9 - 2.0 * 131072 * 4096).epsilon(0.01));
}

TEST_CASE("Mistral Small 4: what is refused") {
  const auto error = [](std::string_view more, absl::StatusCode code) {
    return ErrorOf(Config("Mistral4ForCausalLM",
                          R"("kv_lora_rank": 64, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
                             "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 3,
                             "moe_intermediate_size": 16, )" +
                              std::string(more)),
                   code);
  };
  CHECK_THAT(error(R"("rope_parameters": {"rope_type": "default"}, "n_group": 2,)",
                   absl::StatusCode::kUnimplemented),
             ContainsSubstring("only one group is supported"));
  CHECK_THAT(error(R"("rope_parameters": {"partial_rotary_factor": 0.25},)",
                   absl::StatusCode::kInvalidArgument),
             ContainsSubstring("rotates 8 numbers of a head, but qk_rope_head_dim is 16"));
  CHECK_THAT(error("", absl::StatusCode::kInvalidArgument),
             ContainsSubstring("rope_parameters: missing"));
}

TEST_CASE("what latent attention does not support is named") {
  const auto error = [](std::string_view architecture, std::string_view more,
                        absl::StatusCode code = absl::StatusCode::kUnimplemented) {
    return ErrorOf(
        Config(architecture, R"("kv_lora_rank": 64, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                                "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 3,
                                "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16, )" +
                                 std::string(more)),
        code);
  };
  const char* const v2 = "DeepseekV2ForCausalLM";
  const char* const v3 = "DeepseekV3ForCausalLM";
  CHECK_THAT(error(v3, R"("attention_bias": true,)"), ContainsSubstring("attention_bias"));
  CHECK_THAT(error(v3, R"("topk_method": "greedy",)"), ContainsSubstring("noaux_tc"));
  CHECK_THAT(error(v2, R"("scoring_func": "sigmoid",)"), ContainsSubstring("softmax"));
  CHECK_THAT(error(v2, R"("norm_topk_prob": true,)"), ContainsSubstring("norm_topk_prob"));
  CHECK_THAT(error(v2, R"("topk_method": "random",)"), ContainsSubstring("group_limited_greedy"));
  CHECK_THAT(ErrorOf(Config(v3, R"("n_routed_experts": 8, "moe_intermediate_size": 16,)"),
                     absl::StatusCode::kInvalidArgument),
             ContainsSubstring("kv_lora_rank"));
}

}  // namespace
}  // namespace stagecoach
