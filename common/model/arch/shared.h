// What several architectures' config.json have in common.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "common/model/config_reader.h"
#include "common/model/model_spec.h"

namespace stagecoach::arch {

inline constexpr int32_t kMaxLayers = 1024;
inline constexpr int32_t kMaxHeads = 1024;
inline constexpr int32_t kMaxHeadDim = 1024;
inline constexpr int32_t kMaxWidth = 1 << 18;  // hidden and intermediate size
inline constexpr int32_t kMaxExperts = 1024;
inline constexpr int32_t kMaxVocab = 1 << 22;
inline constexpr int32_t kMaxPositions = 1 << 24;

// Values of keys that a published checkpoint may leave out.
struct SizeDefaults {
  std::optional<int32_t> vocab_size, n_heads, n_kv_heads, head_dim, max_positions;
  double norm_eps = 1e-6;
};

// vocab_size, hidden_size, head counts and size, intermediate_size, max_position_embeddings,
// rms_norm_eps, tie_word_embeddings, as Llama and all after it spell them; `layers` gets
// num_hidden_layers entries. Absent num_key_value_heads: one a head; absent head_dim: hidden_size /
// num_attention_heads.
void ReadSizes(ConfigReader& config, const SizeDefaults& defaults, ModelSpec& spec);

Activation ReadActivation(ConfigReader& config, std::string_view key, std::string_view or_else);

// What a section of rotary parameters may leave out.
struct RopeDefaults {
  double theta;
  int32_t max_positions;           // the model's
  int32_t original_max_positions;  // those that it was first trained with
  int32_t head_dim;
  double partial_rotary_factor = 1.0;
};

// rope_parameters, or rope_theta and rope_scaling; `theta` where none is given. REQUIRES: `spec`
// has what ReadSizes reads.
RopeSpec ReadRope(ConfigReader& config, double theta, const ModelSpec& spec);
// A section of rotary parameters alone: rope_type (or type), factor and so on.
RopeSpec ReadRopeParameters(ConfigReader& section, const RopeDefaults& defaults);

// Window of each layer (0: full attention): layer_types where given, else full at every
// `pattern`-th layer and `window` elsewhere.
std::vector<int32_t> ReadLayerWindows(ConfigReader& config, int32_t n_layers, int32_t window,
                                      int32_t pattern);
// Qwen: `sliding_window` holds only with use_sliding_window, from layer max_window_layers on or as
// layer_types says.
std::vector<int32_t> ReadQwenWindows(ConfigReader& config, int32_t n_layers);
// Groups layers of one window; one that spans all positions is full attention.
void SetKvGroups(std::span<const int32_t> windows, ModelSpec& spec);

// num_experts_per_tok, and the number of experts by `count_key`; each is `width` wide. Layers that
// have them still must be marked.
void ReadExperts(ConfigReader& config, std::string_view count_key, const ExpertSpec& defaults,
                 int32_t width, ModelSpec& spec);

// 1 / sqrt(head_dim)
float UsualAttentionScale(const ModelSpec& spec);

// model.layers.{}.self_attn.q_proj and so on. Gemma's four norms a layer are set by its own files.
TensorNames LlamaTensorNames();

// Gemma 1 to 3: norms, names, activation, embedding scale.
void SetGemmaCommon(ConfigReader& config, ModelSpec& spec);
// Gemma-2 and -3: norms behind the blocks too, query_pre_attn_scalar, soft caps. `attn_softcap` and
// `logit_softcap` hold where the file does not mention them (null turns one off).
void SetGemmaNormsAndCaps(ConfigReader& config, double attn_softcap, double logit_softcap,
                          ModelSpec& spec);

}  // namespace stagecoach::arch
