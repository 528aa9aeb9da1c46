// Qwen3-MoE: Qwen3's attention, and a mixture of many small experts in every layer or every n-th.
#include <algorithm>

#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadQwen3Moe(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config, {.max_positions = 32768}, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.qkv_bias = spec.o_bias = config.Bool("attention_bias", false);
  spec.ropes = {ReadRope(config, 10000.0, spec)};
  const int32_t window = config.Bool("use_sliding_window", false)
                             ? config.Int("sliding_window", 1, kMaxPositions, 4096)
                             : 0;
  ReadExperts(
      config, config.Has("num_experts") ? "num_experts" : "num_local_experts",
      {.n_experts = 128, .n_used = 8, .weights_over_used = config.Bool("norm_topk_prob", false)},
      config.Int("moe_intermediate_size", 1, kMaxWidth, 768), spec);
  const int32_t step = config.Int("decoder_sparse_step", 1, kMaxLayers, 1);
  const std::vector<int32_t> dense = config.IntOrInts("mlp_only_layers", 0, kMaxLayers);
  if (!config.ok()) return;
  for (int32_t i = 0; i < spec.n_layers(); ++i) {
    spec.layers[static_cast<size_t>(i)].has_experts =
        (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
  }
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), window), spec);
  TensorNames& names = spec.names = LlamaTensorNames();
  spec.qk_norm = true;
  names.q_norm = "model.layers.{}.self_attn.q_norm";
  names.k_norm = "model.layers.{}.self_attn.k_norm";
  names.router = "model.layers.{}.mlp.gate";
  names.expert_gate = "model.layers.{}.mlp.experts.{}.gate_proj";
  names.expert_up = "model.layers.{}.mlp.experts.{}.up_proj";
  names.expert_down = "model.layers.{}.mlp.experts.{}.down_proj";
}

}  // namespace stagecoach::arch
