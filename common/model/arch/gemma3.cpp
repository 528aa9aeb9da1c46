// Gemma-3 (text): like Gemma-2, but per-head norms of q and k replace the soft caps. Five windowed
// layers are followed by one full layer; the two kinds have different rotary parameters.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {
namespace {

// Windowed layers use unscaled rotation: in the old format, rope_theta and rope_scaling apply to
// full layers only.
void ReadRopes(ConfigReader& config, ModelSpec& spec) {
  constexpr double kFullTheta = 1e6, kWindowTheta = 1e4;
  if (config.Has("rope_parameters")) {
    ConfigReader both = config.Section("rope_parameters");
    ConfigReader full = both.Section("full_attention");
    ConfigReader window = both.Section("sliding_attention");
    RopeDefaults defaults{.theta = kFullTheta,
                          .max_positions = spec.max_positions,
                          .original_max_positions = spec.max_positions,
                          .head_dim = spec.head_dim};
    spec.ropes = {ReadRopeParameters(full, defaults), RopeSpec{}};
    defaults.theta = kWindowTheta;
    spec.ropes[1] = ReadRopeParameters(window, defaults);
    return;
  }
  spec.ropes = {ReadRope(config, kFullTheta, spec), RopeSpec{}};
  spec.ropes[1].theta = config.Number("rope_local_base_freq", 1.0, 1e12, kWindowTheta);
}

void ReadText(ConfigReader& config, const SizeDefaults& defaults, ModelSpec& spec) {
  ReadSizes(config, defaults, spec);
  SetGemmaCommon(config, spec);
  SetGemmaNormsAndCaps(config, /*attn_softcap=*/0, /*logit_softcap=*/0, spec);
  spec.qk_norm = true;
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  ReadRopes(config, spec);
  const int32_t window = config.Int("sliding_window", 1, kMaxPositions, 4096);
  const char* pattern_key =
      config.Has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  const int32_t pattern = config.Int(pattern_key, 1, kMaxLayers, 6);
  const std::vector<int32_t> windows = ReadLayerWindows(config, spec.n_layers(), window, pattern);
  if (!config.ok()) return;
  SetKvGroups(windows, spec);
  for (size_t i = 0; i < windows.size(); ++i) spec.layers[i].rope = windows[i] > 0 ? 1 : 0;
}

}  // namespace

void ReadGemma3(ConfigReader& config, ModelSpec& spec) {
  ReadText(config, {.n_kv_heads = 4, .head_dim = 256, .max_positions = 131072}, spec);
}

// Checkpoints with a vision tower keep the text model's keys in the section text_config, and omit
// keys that have the configuration class's default.
void ReadGemma3Multimodal(ConfigReader& config, ModelSpec& spec) {
  std::optional<ConfigReader> text = TextPart(config, spec);
  if (!text) return;
  ReadText(*text,
           {.vocab_size = 262208,
            .n_heads = 8,
            .n_kv_heads = 4,
            .head_dim = 256,
            .max_positions = 131072},
           spec);
}

}  // namespace stagecoach::arch
