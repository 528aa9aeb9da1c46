// Configurations of models with experts and attention as others have it.
#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("experts: in every layer of Mixtral, in some layers of Qwen3-MoE") {
  const ModelSpec mixtral = MustRead(Config("MixtralForCausalLM", R"("num_key_value_heads": 2,)"));
  CHECK(mixtral.experts.n_experts == 8);
  CHECK(mixtral.experts.n_used == 2);
  CHECK(mixtral.experts.intermediate_size == 160);
  CHECK(mixtral.experts.weights_over_used);
  CHECK(mixtral.mlp_width(mixtral.layers.front()) == 0);

  const ModelSpec qwen =
      MustRead(Config("Qwen3MoeForCausalLM",
                      R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24,
                "decoder_sparse_step": 2, "mlp_only_layers": [3],)"));
  CHECK(qwen.experts.n_experts == 16);
  CHECK(qwen.experts.intermediate_size == 24);
  CHECK_FALSE(qwen.experts.weights_over_used);
  for (int32_t i = 0; i < 4; ++i) {
    CHECK(qwen.layers[static_cast<size_t>(i)].has_experts == (i == 1));
  }
  CHECK_THAT(ErrorOf(Config("MixtralForCausalLM",
                            R"("num_local_experts": 2, "num_experts_per_tok": 3,
                               "num_key_value_heads": 2,)"),
                     absl::StatusCode::kInvalidArgument),
             ContainsSubstring("num_experts_per_tok: 3 is more than the model's 2 experts"));
}

TEST_CASE("gpt-oss, as published") {
  const ModelSpec spec = *ReadShape("gpt-oss-20b");
  CHECK(spec.n_layers() == 24);
  CHECK(spec.stored_dtype == DType::kBF16);
  CHECK(spec.quantization.method == QuantMethod::kMxFp4);
  CHECK((spec.experts.n_experts == 32 && spec.experts.n_used == 4));
  CHECK((spec.experts.router_bias && spec.experts.biases && spec.experts.weights_over_used));
  CHECK((spec.attn_sinks && spec.qkv_bias && spec.o_bias));
  CHECK(spec.clamped_glu.limit == 7.0f);
  CHECK(spec.clamped_glu.slope == 1.702f);
  CHECK(spec.kv_groups[static_cast<size_t>(spec.layers[0].kv_group)].window == 128);
  CHECK(spec.kv_groups[static_cast<size_t>(spec.layers[1].kv_group)].window == 0);
  CHECK(spec.ropes[0].scaling == RopeScaling::kYarn);
  CHECK_FALSE(spec.ropes[0].truncate);
  CHECK((*ReadShape("gpt-oss-120b")).experts.n_experts == 128);
}

TEST_CASE("GLM-4.5-Air, as published: its layer for further tokens is left out") {
  const ModelSpec spec = *ReadShape("glm-4.5-air");
  CHECK(spec.n_layers() == 46);
  CHECK(spec.n_unused_layers == 1);
  CHECK((!spec.layers[0].has_experts && spec.layers[1].has_experts));
  CHECK((spec.qkv_bias && !spec.o_bias && !spec.qk_norm));
  CHECK(spec.ropes[0].rotary_dim == 64);
  CHECK(spec.shared_expert.intermediate_size == 1408);
  CHECK(spec.experts.sigmoid.has_value());
  CHECK(spec.mlp_width() == 10944);
}

TEST_CASE("groups of experts must fit the experts") {
  const auto error = [](std::string_view more) {
    return ErrorOf(Config("Glm4MoeForCausalLM",
                          R"("num_key_value_heads": 4, "n_routed_experts": 8,
                             "num_experts_per_tok": 3, )" +
                              std::string(more)),
                   absl::StatusCode::kInvalidArgument);
  };
  CHECK_THAT(error(R"("n_group": 3,)"), ContainsSubstring("8 experts do not form 3 groups"));
  CHECK_THAT(error(R"("n_group": 8,)"), ContainsSubstring("8 experts do not form 8 groups"));
  CHECK_THAT(error(R"("n_group": 2, "topk_group": 3,)"), ContainsSubstring("more than n_group"));
  CHECK_THAT(error(R"("n_group": 4, "topk_group": 1,)"), ContainsSubstring("fewer experts"));
}

TEST_CASE("MiniMax-M2, as published") {
  const ModelSpec spec = *ReadShape("minimax-m2");
  CHECK(spec.n_layers() == 62);
  CHECK((spec.qk_norm && spec.qk_norm_all_heads));
  CHECK(spec.ropes[0].rotary_dim == 64);
  CHECK(spec.ropes[0].theta == 5e6);
  CHECK((spec.experts.n_experts == 256 && spec.experts.intermediate_size == 1536));
  CHECK(spec.experts.sigmoid->n_groups == 1);
  CHECK(spec.quantization.method == QuantMethod::kFp8);
  CHECK_THAT(ErrorOf(Config("MiniMaxM2ForCausalLM", R"("attn_type_list": [1, 0, 1, 1],
                                                       "num_key_value_heads": 4,)"),
                     absl::StatusCode::kUnimplemented),
             ContainsSubstring("attn_type_list"));
}

}  // namespace
}  // namespace stagecoach
