// SmolLM3: Llama's layers, every fourth without rotation.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadSmolLm3(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config, {.vocab_size = 128256, .n_kv_heads = 4, .max_positions = 32768}, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", true);
  spec.qkv_bias = spec.o_bias = config.Bool("attention_bias", false);
  spec.mlp_bias = config.Bool("mlp_bias", false);
  spec.ropes = {ReadRope(config, 2e6, spec)};
  const std::vector<int32_t> rotates = ReadRotatingLayers(config, spec.n_layers());
  if (config.Bool("use_sliding_window", false)) {
    config.Unsupported("use_sliding_window", "is not supported for this architecture");
  }
  if (!config.ok()) return;
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), 0), spec);
  for (size_t i = 0; i < spec.layers.size(); ++i) spec.layers[i].rope = rotates[i] != 0 ? 0 : -1;
  spec.names = LlamaTensorNames();
}

}  // namespace stagecoach::arch
