// Qwen3: Llama's layers with per-head norms of q and k.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadQwen3(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config, {.head_dim = 128, .max_positions = 32768}, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.qkv_bias = spec.o_bias = config.Bool("attention_bias", false);
  spec.ropes = {ReadRope(config, 10000.0, spec)};
  const std::vector<int32_t> windows = ReadQwenWindows(config, spec.n_layers());
  if (!config.ok()) return;
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(windows, spec);
  spec.names = LlamaTensorNames();
  spec.qk_norm = true;
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
}

}  // namespace stagecoach::arch
