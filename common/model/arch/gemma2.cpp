// Gemma-2: four (1 + w) norms per layer, soft caps on scores and logits, a window in every second
// layer.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadGemma2(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config, {.n_kv_heads = 4, .head_dim = 256, .max_positions = 8192}, spec);
  SetGemmaCommon(config, spec);
  SetGemmaNormsAndCaps(config, /*attn_softcap=*/50, /*logit_softcap=*/30, spec);
  spec.ropes = {ReadRope(config, 10000.0, spec)};
  const int32_t window = config.Int("sliding_window", 1, kMaxPositions, 4096);
  const std::vector<int32_t> windows =
      ReadLayerWindows(config, spec.n_layers(), window, /*pattern=*/2);
  if (config.ok()) SetKvGroups(windows, spec);
}

}  // namespace stagecoach::arch
