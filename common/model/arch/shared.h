// Parts of config.json that several architectures share.
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

// Defaults for keys that a published checkpoint may omit.
struct SizeDefaults {
  std::optional<int32_t> vocab_size, n_layers, n_heads, n_kv_heads, head_dim, intermediate_size,
      max_positions;
  double norm_eps = 1e-6;
};

// Reads vocab_size, hidden_size, head counts and size, intermediate_size, max_position_embeddings,
// rms_norm_eps and tie_word_embeddings under the key names of Llama and its successors. `layers`
// gets num_hidden_layers entries. Default of num_key_value_heads: one per query head. Default of
// head_dim: hidden_size / num_attention_heads.
void ReadSizes(ConfigReader& config, const SizeDefaults& defaults, ModelSpec& spec);

// The language model of a checkpoint that can also see, in the section text_config. Notes that it
// is served as text.
std::optional<ConfigReader> TextPart(ConfigReader& config, ModelSpec& spec);

Activation ReadActivation(ConfigReader& config, std::string_view key, std::string_view or_else);

// Defaults for keys that a section of rotary parameters may omit.
struct RopeDefaults {
  double theta;
  int32_t max_positions;           // of the model
  int32_t original_max_positions;  // of the original training
  int32_t head_dim;
  double partial_rotary_factor = 1.0;
};

// Reads rope_parameters, or rope_theta and rope_scaling. The arguments are the defaults. REQUIRES:
// `spec` has the fields that ReadSizes fills in.
RopeSpec ReadRope(ConfigReader& config, double theta, const ModelSpec& spec,
                  double partial_rotary_factor = 1.0);
// The section of rotary parameters. Like transformers: if a converted file has both keys, the old
// one wins.
ConfigReader RopeSection(ConfigReader& config);
// A problem if neither key is there, for models that nobody publishes without.
void NeedRopeParameters(ConfigReader& config);
// Reads how much the queries of all layers grow with the position (Mistral's models from 2025 on),
// which stands in the section of rotary parameters. That section must be there.
void ReadQueryScaling(ConfigReader& config, ModelSpec& spec);
// Reads one section of rotary parameters: rope_type (or type), factor and so on.
RopeSpec ReadRopeParameters(ConfigReader& section, const RopeDefaults& defaults);

// Which layers are `other`, by a list of strings, one for each layer: `usual` or `other`. Empty if
// the config has no such list, or if the list is a problem.
std::vector<bool> ReadLayerKinds(ConfigReader& config, const char* key, int32_t n_layers,
                                 std::string_view usual, std::string_view other);

// Returns the window of each layer (0: full attention). Uses layer_types if present; otherwise
// every `pattern`-th layer has full attention and the others have `window`.
std::vector<int32_t> ReadLayerWindows(ConfigReader& config, int32_t n_layers, int32_t window,
                                      int32_t pattern);
// Reads no_rope_layers, which despite its name has 1 for each layer with rotation, or
// no_rope_layer_interval.
std::vector<int32_t> ReadRotatingLayers(ConfigReader& config, int32_t n_layers);
// Qwen: `sliding_window` applies only with use_sliding_window, from layer max_window_layers on or
// as layer_types says.
std::vector<int32_t> ReadQwenWindows(ConfigReader& config, int32_t n_layers);
// Groups layers by window. A window that spans all positions counts as full attention. by_chunk:
// see KeyWindow.
void SetKvGroups(std::span<const int32_t> windows, ModelSpec& spec, bool by_chunk = false);

// Reads num_experts_per_tok and, from `count_key`, the number of experts. Each expert has
// intermediate size `width`. The caller must still mark the layers that have experts.
void ReadExperts(ConfigReader& config, std::string_view count_key, const ExpertSpec& defaults,
                 int32_t width, ModelSpec& spec);

// Qwen: every decoder_sparse_step-th layer has experts, except those of mlp_only_layers.
void ReadQwenSparseLayers(ConfigReader& config, ModelSpec& spec);
// Reports groups that do not divide the experts into parts of `least_size` or more, or that have
// fewer experts than a token uses. After ReadExperts.
void CheckExpertGroups(ConfigReader& config, int32_t n_groups, int32_t n_used_groups,
                       int32_t least_size, const ModelSpec& spec);
// Scores by sigmoid: n_group, topk_group and routed_scaling_factor. After ReadExperts.
void ReadSigmoidRouting(ConfigReader& config, ModelSpec& spec);

// 1 / sqrt(head_dim)
float UsualAttentionScale(const ModelSpec& spec);

// Names such as model.layers.{}.self_attn.q_proj. Gemma's own files set its four norms per layer.
TensorNames LlamaTensorNames();
// Router and experts as model.layers.{}.mlp.gate and model.layers.{}.mlp.experts.{}.gate_proj.
void SetExpertNames(TensorNames& names);
// The file may have the experts of a layer in model.layers.{}.mlp.experts.gate_up_proj and
// down_proj instead.
void MayFuseExperts(TensorNames& names);

// Gemma 1 to 3: norms, names, activation, embedding scale.
void SetGemmaCommon(ConfigReader& config, ModelSpec& spec);
// Gemma-2 and -3: norms after the blocks as well, query_pre_attn_scalar, soft caps. `attn_softcap`
// and `logit_softcap` apply if the file does not mention the keys (null turns a cap off).
void SetGemmaNormsAndCaps(ConfigReader& config, double attn_softcap, double logit_softcap,
                          ModelSpec& spec);

}  // namespace stagecoach::arch
