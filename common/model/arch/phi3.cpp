// Phi-3 and Phi-4: Llama's layers with q, k and v fused into one tensor, and gate and up into
// another. Long contexts use a factor per rotary frequency.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadPhi3(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config, {.max_positions = 4096, .norm_eps = 1e-5}, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.ropes = {ReadRope(config, 10000.0, spec)};
  const int32_t window = config.Int("sliding_window", 1, kMaxPositions, 0);
  if (!config.ok()) return;
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), window), spec);
  spec.names = LlamaTensorNames();
  spec.names.q = spec.names.k = spec.names.v = spec.names.gate = spec.names.up = "";
  spec.names.qkv = "model.layers.{}.self_attn.qkv_proj";
  spec.names.gate_up = "model.layers.{}.mlp.gate_up_proj";
}

}  // namespace stagecoach::arch
