// Qwen2: Llama's layers with biases on q, k and v, and optional windows in the upper layers.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadQwen2(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config, {.max_positions = 32768}, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.qkv_bias = true;
  spec.ropes = {ReadRope(config, 10000.0, spec)};
  const std::vector<int32_t> windows = ReadQwenWindows(config, spec.n_layers());
  if (!config.ok()) return;
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(windows, spec);
  spec.names = LlamaTensorNames();
}

}  // namespace stagecoach::arch
