// Qwen3-MoE: Qwen3's attention, and a mixture of many small experts in every layer or every n-th.
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
  ReadQwenSparseLayers(config, spec);
  if (!config.ok()) return;
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), window), spec);
  TensorNames& names = spec.names = LlamaTensorNames();
  spec.qk_norm = true;
  names.q_norm = "model.layers.{}.self_attn.q_norm";
  names.k_norm = "model.layers.{}.self_attn.k_norm";
  SetExpertNames(names);
}

}  // namespace stagecoach::arch
