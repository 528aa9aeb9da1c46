// Mixtral: Mistral's attention, and a mixture of experts in every layer.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadMixtral(ConfigReader& config, ModelSpec& spec) {
  SizeDefaults defaults{.max_positions = 131072, .norm_eps = 1e-5};
  if (!config.Mentions("num_key_value_heads")) defaults.n_kv_heads = 8;
  ReadSizes(config, defaults, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.ropes = {ReadRope(config, 1e6, spec)};
  const int32_t window = config.Int("sliding_window", 1, kMaxPositions, 0);
  ReadExperts(config, "num_local_experts", {.n_experts = 8, .n_used = 2}, spec.intermediate_size,
              spec);
  if (!config.ok()) return;
  for (LayerSpec& layer : spec.layers) layer.has_experts = true;
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), window), spec);
  TensorNames& names = spec.names = LlamaTensorNames();
  names.gate = names.up = names.down = "";
  names.router = "model.layers.{}.block_sparse_moe.gate";
  names.expert_gate = "model.layers.{}.block_sparse_moe.experts.{}.w1";
  names.expert_up = "model.layers.{}.block_sparse_moe.experts.{}.w3";
  names.expert_down = "model.layers.{}.block_sparse_moe.experts.{}.w2";
}

}  // namespace stagecoach::arch
