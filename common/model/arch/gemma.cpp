// Gemma (1): (1 + w) norms before the blocks, a scaled embedding, no caps and no windows.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadGemma(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config, {.head_dim = 256, .max_positions = 8192}, spec);
  SetGemmaCommon(config, spec);
  // The first files say "gelu" but mean the tanh approximation that the model was trained with.
  if (spec.activation == Activation::kGelu) spec.activation = Activation::kGeluTanh;
  spec.ropes = {ReadRope(config, 10000.0, spec)};
  if (!config.ok()) return;
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), 0), spec);
}

}  // namespace stagecoach::arch
