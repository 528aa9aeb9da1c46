// Seed-OSS: Llama's layers, with biases on q, k and v.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadSeedOss(ConfigReader& config, ModelSpec& spec) {
  SizeDefaults defaults{.head_dim = 128, .max_positions = 524288};
  if (!config.Mentions("num_key_value_heads")) defaults.n_kv_heads = 8;
  ReadSizes(config, defaults, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.qkv_bias = config.Bool("attention_bias", true);
  spec.o_bias = config.Bool("attention_out_bias", false);
  spec.mlp_bias = config.Bool("mlp_bias", false);
  spec.ropes = {ReadRope(config, 1e7, spec)};
  if (!config.ok()) return;
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), 0), spec);
  spec.names = LlamaTensorNames();
}

}  // namespace stagecoach::arch
