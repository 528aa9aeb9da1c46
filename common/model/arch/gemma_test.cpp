#include <catch2/catch_approx.hpp>
#include <cmath>

#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Gemma-2: caps, layer windows, scales") {
  const char* const types =
      R"("layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],)";
  for (const char* how : {types, ""}) {
    const ModelSpec spec = MustRead(Config(
        "Gemma2ForCausalLM",
        std::string(how) + R"("sliding_window": 16, "query_pre_attn_scalar": 48, "head_dim": 64,
        "attn_logit_softcapping": 5.0, "final_logit_softcapping": null,)"));
    CHECK(spec.norm == NormKind::kRmsPlusOne);
    CHECK(spec.norm_placement == NormPlacement::kBeforeAndAfter);
    CHECK(spec.tied_embedding);
    CHECK(spec.activation == Activation::kGeluTanh);
    CHECK(spec.embed_scale == Approx(std::sqrt(128.0)));
    CHECK(spec.attn_scale == Approx(1.0 / std::sqrt(48.0)));
    CHECK(spec.attn_softcap == 5.0f);
    CHECK(spec.logit_softcap == 0.0f);
    REQUIRE(spec.kv_groups.size() == 2);
    CHECK(spec.kv_groups[0].window == 16);
    CHECK(spec.kv_groups[1].window == 0);
    CHECK(spec.layers[2].kv_group == 0);
    CHECK(spec.layers[3].kv_group == 1);
    CHECK(spec.names.mlp_norm == "model.layers.{}.pre_feedforward_layernorm");
  }
  CHECK(MustRead(Config("Gemma2ForCausalLM", "")).logit_softcap == 30.0f);
}

TEST_CASE("Gemma-3: RoPE by layer type in both spellings") {
  for (
      const char* spelling :
      {R"("sliding_window_pattern": 3, "rope_theta": 2000000.0, "rope_local_base_freq": 20000.0,
           "rope_scaling": {"rope_type": "linear", "factor": 8.0},)",
       R"("layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
           "rope_parameters": {
             "full_attention": {"rope_theta": 2000000.0, "rope_type": "linear", "factor": 8.0},
             "sliding_attention": {"rope_theta": 20000.0, "rope_type": "default"}},)"}) {
    const ModelSpec spec =
        MustRead(Config("Gemma3ForCausalLM", std::string(spelling) + R"("sliding_window": 16,)"));
    CHECK(spec.qk_norm);
    REQUIRE(spec.ropes.size() == 2);
    CHECK(spec.ropes[0].theta == 2e6);
    CHECK(spec.ropes[0].scaling == RopeScaling::kLinear);
    CHECK(spec.ropes[1].theta == 2e4);
    CHECK(spec.ropes[1].scaling == RopeScaling::kNone);
    CHECK(spec.layers[2].rope == 0);
    CHECK(spec.layers[3].rope == 1);
    CHECK(spec.kv_groups[spec.layers[2].kv_group].window == 0);
    CHECK(spec.kv_groups[spec.layers[3].kv_group].window == 16);
  }
}

TEST_CASE("Gemma-3 with a vision tower: the text part with its class's defaults") {
  const ModelSpec spec =
      MustRead(R"({"architectures": ["Gemma3ForConditionalGeneration"], "torch_dtype": "bfloat16",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
                    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})");
  CHECK(spec.vocab_size == 262208);
  CHECK(spec.n_heads == 8);
  CHECK(spec.n_kv_heads == 4);
  CHECK(spec.head_dim == 256);
  CHECK(spec.stored_dtype == DType::kBF16);
  CHECK(spec.ropes[0].theta == 1e6);
  CHECK(spec.ropes[0].factor == 8.0);
  CHECK(spec.layers[5].rope == 0);
  CHECK(spec.layers[4].rope == 1);
}

TEST_CASE("Gemma: early configs say gelu but mean the tanh approximation") {
  for (const char* how : {R"("hidden_act": "gelu",)", R"("hidden_activation": null,)", ""}) {
    const ModelSpec spec = MustRead(Config("GemmaForCausalLM", how));
    CHECK(spec.activation == Activation::kGeluTanh);
    CHECK(spec.norm_placement == NormPlacement::kBefore);
    CHECK(spec.attn_scale == Approx(1.0 / 16));
    CHECK(spec.names.mlp_norm == "model.layers.{}.post_attention_layernorm");
  }
}

TEST_CASE("Gemma 4 31B, as published: full layers have other heads") {
  const ModelSpec spec = *ReadShape("gemma-4-31b");
  CHECK(spec.n_layers() == 60);
  const HeadShape windowed = spec.heads(spec.layers[0]), full = spec.heads(spec.layers[5]);
  CHECK((windowed.head_dim == 256 && windowed.n_kv_heads == 16));
  CHECK(windowed.kv_of_row == KvOfRow::kKeysAndValues);
  CHECK((full.head_dim == 512 && full.n_kv_heads == 4));
  CHECK(full.kv_of_row == KvOfRow::kKeysAsValues);
  CHECK(full.qkv_width() == (32 + 4) * 512);
  CHECK(spec.kv_groups[static_cast<size_t>(spec.layers[0].kv_group)].window == 1024);
  const RopeSpec& rope = spec.ropes[static_cast<size_t>(spec.layers[5].rope)];
  CHECK(rope.scaling == RopeScaling::kProportional);
  CHECK((rope.theta == 1e6 && rope.rotary_dim == 512 && rope.n_turning == 64));
  CHECK(spec.ropes[static_cast<size_t>(spec.layers[0].rope)].rotary_dim == 256);
  CHECK((spec.attn_scale == 1 && spec.logit_softcap == 30));
  CHECK(spec.passed_width() == 5376);
  CHECK(spec.CanBeginStage(59));
}

TEST_CASE("Gemma 4 26B-A4B, as published: experts beside each MLP") {
  const ModelSpec spec = *ReadShape("gemma-4-26b-a4b");
  CHECK(spec.experts.beside_mlp);
  CHECK((spec.experts.n_experts == 128 && spec.experts.n_used == 8));
  CHECK(spec.experts.intermediate_size == 704);
  CHECK(spec.mlp_width(spec.layers[0]) == 2112);
}

TEST_CASE("Gemma 4 E2B and E4B, as published: shared keys and inputs of layers") {
  const ModelSpec spec = *ReadShape("gemma-4-e2b");
  CHECK(spec.layers[14].kv_source == -1);
  CHECK(spec.layers[15].kv_source == 13);
  CHECK(spec.layers[19].kv_source == 14);
  CHECK(spec.layers[34].kv_source == 14);
  CHECK(spec.heads(spec.layers[34]).qkv_width() == 8 * 512);
  CHECK(spec.mlp_width(spec.layers[14]) == 6144);
  CHECK(spec.mlp_width(spec.layers[15]) == 12288);
  CHECK(spec.CanBeginStage(13));
  CHECK_FALSE(spec.CanBeginStage(14));
  CHECK(spec.passed_width() == 1536 + 35 * 256);
  const ModelSpec larger = *ReadShape("gemma-4-e4b");
  CHECK(larger.layers[41].kv_source == 23);
  CHECK(larger.mlp_width() == 10240);
  CHECK(larger.heads(larger.layers[5]).kv_of_row == KvOfRow::kKeysAndValues);
}

TEST_CASE("Gemma 4: what cannot be run is named") {
  const auto error = [](std::string_view more, absl::StatusCode code) {
    return ErrorOf(
        Config("Gemma4ForCausalLM",
               R"("hidden_size_per_layer_input": 0, "head_dim": 32, )" + std::string(more)),
        code);
  };
  const auto wrong = absl::StatusCode::kInvalidArgument;
  const auto unsupported = absl::StatusCode::kUnimplemented;
  CHECK_THAT(error(R"("use_bidirectional_attention": "all",)", unsupported),
             ContainsSubstring("only causal attention"));
  CHECK_THAT(error(R"("per_layer_config": {"0": {"head_dim": 16}},)", unsupported),
             ContainsSubstring("only full_attention layers"));
  CHECK_THAT(error(R"("num_kv_shared_layers": 4,)", wrong),
             ContainsSubstring("has no layer of its kind"));
  CHECK_THAT(error(R"("enable_moe_block": true,)", wrong), ContainsSubstring("num_experts"));
  CHECK_THAT(error(R"("attention_k_eq_v": true, "num_global_key_value_heads": 3,)", wrong),
             ContainsSubstring("num_global_key_value_heads"));
}

}  // namespace
}  // namespace stagecoach
