// GLM-4.5 to 4.7: some dense layers, then layers with experts chosen by sigmoid from groups, beside
// a shared expert. Rotation of a part of each head.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadGlm4Moe(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config, {.n_kv_heads = 8, .max_positions = 131072, .norm_eps = 1e-5}, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.qkv_bias = config.Bool("attention_bias", false);
  spec.qk_norm = config.Bool("use_qk_norm", false);
  spec.ropes = {ReadRope(config, 10000.0, spec, /*partial_rotary_factor=*/0.5)};
  const int32_t width = config.Int("moe_intermediate_size", 1, kMaxWidth, 1408);
  const int32_t n_shared = config.Int("n_shared_experts", 0, kMaxExperts, 1);
  ReadExperts(
      config, "n_routed_experts",
      {.n_experts = 128, .n_used = 8, .weights_over_used = config.Bool("norm_topk_prob", true)},
      width, spec);
  ReadSigmoidRouting(config, spec);
  const int32_t n_dense = config.Int("first_k_dense_replace", 0, kMaxLayers, 1);
  spec.n_unused_layers = config.Int("num_nextn_predict_layers", 0, kMaxLayers, 0);
  if (!config.ok()) return;
  if (int64_t{width} * n_shared > kMaxWidth) {
    config.Problem("n_shared_experts", "too many");
    return;
  }
  spec.shared_expert.intermediate_size = width * n_shared;
  for (int32_t i = n_dense; i < spec.n_layers(); ++i) {
    spec.layers[static_cast<size_t>(i)].has_experts = true;
  }
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), 0), spec);
  TensorNames& names = spec.names = LlamaTensorNames();
  if (spec.qk_norm) {
    names.q_norm = "model.layers.{}.self_attn.q_norm";
    names.k_norm = "model.layers.{}.self_attn.k_norm";
  }
  SetExpertNames(names);
  names.router_correction = "model.layers.{}.mlp.gate.e_score_correction_bias";
  spec.shared_expert.gate = "model.layers.{}.mlp.shared_experts.gate_proj";
  spec.shared_expert.up = "model.layers.{}.mlp.shared_experts.up_proj";
  spec.shared_expert.down = "model.layers.{}.mlp.shared_experts.down_proj";
}

}  // namespace stagecoach::arch
