// Llama 1 to 3.x: RMS norms, rotary positions, SiLU-gated MLP, grouped keys and values.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadLlama(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config, {.max_positions = 2048}, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.qkv_bias = spec.o_bias = config.Bool("attention_bias", false);
  spec.mlp_bias = config.Bool("mlp_bias", false);
  spec.ropes = {ReadRope(config, 10000.0, spec)};
  if (!config.ok()) return;
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), 0), spec);
  spec.names = LlamaTensorNames();
}

}  // namespace stagecoach::arch
