// Mistral: Llama's layers, optionally with one sliding window for all of them.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadMistral(ConfigReader& config, ModelSpec& spec) {
  SizeDefaults defaults{.max_positions = 131072};
  if (!config.Mentions("num_key_value_heads")) defaults.n_kv_heads = 8;
  ReadSizes(config, defaults, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.ropes = {ReadRope(config, 10000.0, spec)};
  const int32_t window =
      config.Int("sliding_window", 1, kMaxPositions, config.Mentions("sliding_window") ? 0 : 4096);
  if (!config.ok()) return;
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), window), spec);
  spec.names = LlamaTensorNames();
}

}  // namespace stagecoach::arch
