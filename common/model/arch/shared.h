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
inline constexpr int32_t kMaxVocab = 1 << 22;
inline constexpr int32_t kMaxPositions = 1 << 24;

// Values of keys that a published checkpoint may leave out.
struct SizeDefaults {
  std::optional<int32_t> vocab_size, n_heads, n_kv_heads, head_dim, max_positions;
};

// vocab_size, hidden_size, head counts and size, intermediate_size, max_position_embeddings,
// rms_norm_eps, tie_word_embeddings, as Llama and all after it spell them; `layers` gets
// num_hidden_layers entries. Absent num_key_value_heads: one a head; absent head_dim: hidden_size /
// num_attention_heads.
void ReadSizes(ConfigReader& config, const SizeDefaults& defaults, ModelSpec& spec);

Activation ReadActivation(ConfigReader& config, std::string_view key, std::string_view or_else);

// rope_parameters, or rope_theta and rope_scaling; `or_else` is the theta where none is given.
RopeSpec ReadRope(ConfigReader& config, double or_else, int32_t max_positions);
// A section of rotary parameters alone: rope_type (or type), factor and so on; its own rope_theta
// before `theta`.
RopeSpec ReadRopeParameters(ConfigReader& section, double theta, int32_t max_positions);

// Window of each layer (0: full attention): layer_types where given, else full at every
// `pattern`-th layer and `window` elsewhere.
std::vector<int32_t> ReadLayerWindows(ConfigReader& config, int32_t n_layers, int32_t window,
                                      int32_t pattern);
// Groups layers of one window; one that spans all positions is full attention.
void SetKvGroups(std::span<const int32_t> windows, ModelSpec& spec);

// model.layers.{}.self_attn.q_proj and so on. Gemma's four norms a layer are set by its own files.
TensorNames LlamaTensorNames();

// Gemma-2 and -3: norms, names, embedding and attention scale, soft caps. `attn_softcap` and
// `logit_softcap` hold where the file does not mention them (null turns one off).
void SetGemmaCommon(ConfigReader& config, double attn_softcap, double logit_softcap,
                    ModelSpec& spec);

}  // namespace stagecoach::arch
