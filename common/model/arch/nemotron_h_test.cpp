#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("Nemotron-H 8B and Nano 2, as published: each layer is one part") {
  const ModelSpec spec = *ReadShape("nemotron-h-8b");
  CHECK(spec.n_layers() == 52);
  CHECK(spec.n_recurrent(0, 52) == 24);
  const LayerSpec &mamba = spec.layers[0], &mlp = spec.layers[1], &attention = spec.layers[7];
  CHECK((mamba.is_recurrent && mamba.has_mixer && !mamba.has_mlp && !mamba.has_attention()));
  CHECK((mlp.has_mlp && !mlp.has_mixer && !mlp.has_attention()));
  CHECK((attention.has_attention() && !attention.has_mlp && attention.rope == -1));
  CHECK((spec.mlp_width(mlp) == 21504 && spec.mlp_width(mamba) == 0));
  CHECK((!spec.gated_mlp && spec.activation == Activation::kReluSquared));
  const RecurrentShape shape = spec.recurrent.value_or(RecurrentSpec{}).shape;
  CHECK(shape.is_state_space());
  CHECK(shape.projected_width() == 2 * 8192 + 2 * 8 * 128 + 128);
  CHECK(shape.state_elements() == 3 * (8192 + 2 * 8 * 128) + 8192 * 128);
  CHECK(shape.norm_group() == 1024);
  CHECK(spec.head_dim == 128);
  const ModelSpec nano = *ReadShape("nemotron-nano-9b-v2");
  CHECK(nano.recurrent.value_or(RecurrentSpec{}).shape.value_dim == 80);
}

TEST_CASE("Nemotron 3 Nano, as published: experts without gates") {
  const ModelSpec spec = *ReadShape("nemotron-3-nano-30b-a3b");
  CHECK((spec.layers[1].has_experts && spec.mlp_width(spec.layers[1]) == 0));
  CHECK((spec.experts.n_experts == 128 && spec.experts.n_used == 6));
  CHECK(spec.experts.sigmoid.value_or(SigmoidRouting{}).factor == 2.5f);
  CHECK(spec.shared_expert.intermediate_size == 3712);
  CHECK(spec.WeightsOfExperts() == 2.0 * 2688 * 1856 * 128);
}

TEST_CASE("Nemotron-H: names of layers, and what is refused") {
  const auto nemotron = [](const std::string& keys) {
    return Config("NemotronHForCausalLM", R"("num_key_value_heads": 2,)" + keys);
  };
  const ModelSpec spec = MustRead(nemotron(R"("layers_block_type": ["mamba", "mlp",
      "full_attention", "linear_attention"], "time_step_limit": [0.0, {"__float__": "Infinity"}],)"));
  CHECK((spec.layers[0].is_recurrent && spec.layers[1].has_mlp && spec.layers[3].is_recurrent));
  CHECK_THAT(
      ErrorOf(nemotron(R"("hybrid_override_pattern": "M-M",)"), absl::StatusCode::kInvalidArgument),
      ContainsSubstring("names 3 layers, num_hidden_layers is 4"));
  CHECK_THAT(
      ErrorOf(nemotron(R"("hybrid_override_pattern": "M-MX",)"), absl::StatusCode::kUnimplemented),
      ContainsSubstring("layer 3 is 'X'"));
  CHECK_THAT(ErrorOf(nemotron(R"("hybrid_override_pattern": "M-ME", "moe_latent_size": 64,)"),
                     absl::StatusCode::kUnimplemented),
             ContainsSubstring("moe_latent_size"));
  CHECK_THAT(ErrorOf(nemotron(R"("hybrid_override_pattern": "M-M*", "time_step_limit": [0.1, 1],)"),
                     absl::StatusCode::kUnimplemented),
             ContainsSubstring("time_step_limit"));
}

}  // namespace
}  // namespace stagecoach
