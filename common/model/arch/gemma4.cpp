// Gemma 4 (text). Windowed layers and full ones differ in head size, number of KV heads and rotary
// parameters, and in the large models the keys of full layers are also their values. q, k and v are
// normed, so scores are not scaled. 26B-A4B has experts beside each MLP. In E2B and E4B the last
// layers share the keys and values of earlier ones, and each layer has inputs of its own.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {
namespace {

// Sizes that full layers have and windowed ones do not.
struct FullLayers {
  int32_t head_dim = 0;
  int32_t n_kv_heads = 0;
};

// Published files have the sizes of full layers in keys of their own. transformers 5 writes
// per_layer_config instead: an object for each full layer, by its number.
FullLayers ReadFullLayers(ConfigReader& config, const ModelSpec& spec,
                          const std::vector<int32_t>& windows, bool keys_as_values) {
  FullLayers full{.head_dim = config.Int("global_head_dim", 2, kMaxHeadDim, 512),
                  .n_kv_heads = spec.n_kv_heads};
  if (keys_as_values) {
    full.n_kv_heads = config.Int("num_global_key_value_heads", 1, kMaxHeads, spec.n_kv_heads);
  }
  if (config.Has("per_layer_config")) {
    ConfigReader by_layer = config.Section("per_layer_config");
    bool is_first = true;
    for (size_t i = 0; i < windows.size(); ++i) {
      const std::string number = std::to_string(i);
      if (windows[i] > 0) {
        if (by_layer.Has(number)) {
          by_layer.Unsupported(number, "only full_attention layers may have sizes of their own");
        }
        continue;
      }
      ConfigReader layer = by_layer.Section(number);
      const FullLayers own{
          .head_dim = layer.Int("head_dim", 2, kMaxHeadDim, spec.head_dim),
          .n_kv_heads = layer.Int("num_key_value_heads", 1, kMaxHeads, spec.n_kv_heads)};
      if (!is_first && (own.head_dim != full.head_dim || own.n_kv_heads != full.n_kv_heads)) {
        by_layer.Unsupported(number, "all full_attention layers must have the same sizes");
      }
      full = own;
      is_first = false;
    }
  }
  if (config.ok() && spec.n_heads % full.n_kv_heads != 0) {
    config.Problem("num_global_key_value_heads",
                   fmt::format("{} does not divide num_attention_heads, which is {}",
                               full.n_kv_heads, spec.n_heads));
  }
  if (config.ok() && full.head_dim % 2 != 0) {
    config.Problem("global_head_dim",
                   fmt::format("{} is odd; rotation needs pairs", full.head_dim));
  }
  return full;
}

void ReadRopes(ConfigReader& config, const FullLayers& full, ModelSpec& spec) {
  constexpr double kFullTheta = 1e6, kWindowTheta = 1e4;
  RopeDefaults defaults{.theta = kFullTheta,
                        .max_positions = spec.max_positions,
                        .original_max_positions = spec.max_positions,
                        .head_dim = full.head_dim};
  if (!config.Has("rope_parameters")) {
    spec.ropes = {RopeSpec{.theta = kFullTheta,
                           .rotary_dim = full.head_dim,
                           .scaling = RopeScaling::kProportional,
                           .n_turning = full.head_dim / 8},
                  RopeSpec{.theta = kWindowTheta, .rotary_dim = spec.head_dim}};
    return;
  }
  ConfigReader both = config.Section("rope_parameters");
  ConfigReader of_full = both.Section("full_attention");
  ConfigReader of_window = both.Section("sliding_attention");
  spec.ropes = {ReadRopeParameters(of_full, defaults), RopeSpec{}};
  defaults.theta = kWindowTheta;
  defaults.head_dim = spec.head_dim;
  spec.ropes[1] = ReadRopeParameters(of_window, defaults);
}

// The last layers use the keys and values of the last layer of their kind before them.
void ShareKeys(ConfigReader& config, int32_t n_shared, ModelSpec& spec) {
  const int32_t n_own = spec.n_layers() - n_shared;
  for (int32_t i = n_own; i < spec.n_layers(); ++i) {
    LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    for (int32_t source = n_own - 1; source >= 0 && layer.kv_source < 0; --source) {
      if (spec.layers[static_cast<size_t>(source)].kv_group == layer.kv_group) {
        layer.kv_source = source;
      }
    }
    if (layer.kv_source >= 0) continue;
    config.Problem("num_kv_shared_layers",
                   fmt::format("layer {} has no layer of its kind before layer {}", i, n_own));
    return;
  }
}

void ReadExpertsBesideMlp(ConfigReader& config, ModelSpec& spec) {
  ExpertSpec& experts = spec.experts;
  experts.n_experts = config.Int("num_experts", 1, kMaxExperts);
  experts.n_used = config.Int("top_k_experts", 1, kMaxExperts);
  experts.intermediate_size = config.Int("moe_intermediate_size", 1, kMaxWidth);
  experts.beside_mlp = true;
  if (config.ok() && experts.n_used > experts.n_experts) {
    config.Problem("top_k_experts", fmt::format("{} is more than the model's {} experts",
                                                experts.n_used, experts.n_experts));
  }
  for (LayerSpec& layer : spec.layers) layer.has_experts = true;
  TensorNames& names = spec.names;
  names.router = "model.layers.{}.router.proj";
  names.router_norm = "model.layers.{}.router.scale";
  names.expert_scales = "model.layers.{}.router.per_expert_scale";
  names.expert_gate = "model.layers.{}.experts.{}.gate_proj";
  names.expert_up = "model.layers.{}.experts.{}.up_proj";
  names.expert_down = "model.layers.{}.experts.{}.down_proj";
  names.fused_expert_up = "model.layers.{}.experts.gate_up_proj";
  names.fused_expert_down = "model.layers.{}.experts.down_proj";
  names.expert_norm = "model.layers.{}.pre_feedforward_layernorm_2";
  names.post_expert_norm = "model.layers.{}.post_feedforward_layernorm_2";
  names.post_dense_norm = "model.layers.{}.post_feedforward_layernorm_1";
}

void ReadLayerInputs(ConfigReader& config, ModelSpec& spec) {
  LayerInputsSpec& inputs = spec.layer_inputs;
  inputs.width = config.Int("hidden_size_per_layer_input", 0, kMaxWidth,
                            config.Mentions("hidden_size_per_layer_input") ? 0 : 256);
  if (inputs.width == 0) return;
  const int32_t n_vocab = config.Int("vocab_size_per_layer_input", 1, kMaxVocab, 262144);
  if (config.ok() && n_vocab != spec.vocab_size) {
    config.Unsupported(
        "vocab_size_per_layer_input",
        fmt::format("{} differs from vocab_size, which is {}", n_vocab, spec.vocab_size));
  }
  if (config.ok() && int64_t{spec.n_layers()} * inputs.width > kMaxWidth) {
    config.Problem("hidden_size_per_layer_input",
                   fmt::format("{} for {} layers are more than {} numbers a token", inputs.width,
                               spec.n_layers(), kMaxWidth));
  }
  inputs.embed = "model.embed_tokens_per_layer";
  inputs.project = "model.per_layer_model_projection";
  inputs.project_norm = "model.per_layer_projection_norm";
  inputs.gate = "model.layers.{}.per_layer_input_gate";
  inputs.up = "model.layers.{}.per_layer_projection";
  inputs.post_norm = "model.layers.{}.post_per_layer_input_norm";
}

void SetNames(TensorNames& names) {
  names.q_norm = "model.layers.{}.self_attn.q_norm";
  names.k_norm = "model.layers.{}.self_attn.k_norm";
  names.post_attn_norm = "model.layers.{}.post_attention_layernorm";
  names.mlp_norm = "model.layers.{}.pre_feedforward_layernorm";
  names.post_mlp_norm = "model.layers.{}.post_feedforward_layernorm";
  names.layer_scale = "model.layers.{}.layer_scalar";
}

// "vision" lets the tokens of one image see each other, which changes nothing in a text.
void CheckCausal(ConfigReader& config) {
  if (!config.Has("use_bidirectional_attention")) return;
  if (config.String("use_bidirectional_attention", "") != "vision") {
    config.Unsupported("use_bidirectional_attention", "only causal attention is supported");
  }
}

}  // namespace

void ReadGemma4(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config,
            {.vocab_size = 262144,
             .n_heads = 8,
             .n_kv_heads = 4,
             .head_dim = 256,
             .intermediate_size = 9216,
             .max_positions = 131072},
            spec);
  CheckCausal(config);
  spec.activation = ReadActivation(config, "hidden_activation", "gelu_pytorch_tanh");
  spec.tied_embedding = config.Bool("tie_word_embeddings", true);
  spec.qkv_bias = spec.o_bias = config.Bool("attention_bias", false);
  spec.embed_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.hidden_size)));
  spec.logit_softcap = static_cast<float>(config.Number("final_logit_softcapping", 0, 1e6, 0.0));
  const int32_t window = config.Int("sliding_window", 1, kMaxPositions, 512);
  std::vector<int32_t> windows = ReadLayerWindows(config, spec.n_layers(), window, /*pattern=*/6);
  windows.back() = 0;  // whatever layer_types says
  const bool keys_as_values = config.Bool("attention_k_eq_v", false);
  const int32_t n_shared = config.Int("num_kv_shared_layers", 0, spec.n_layers(), 0);
  const bool wide_shared = config.Bool("use_double_wide_mlp", false);
  spec.names = LlamaTensorNames();
  SetNames(spec.names);
  ReadLayerInputs(config, spec);
  if (config.Bool("enable_moe_block", false)) ReadExpertsBesideMlp(config, spec);
  if (!config.ok()) return;
  const FullLayers full = ReadFullLayers(config, spec, windows, keys_as_values);
  ReadRopes(config, full, spec);
  if (!config.ok()) return;

  spec.norm_placement = NormPlacement::kBeforeAndAfter;
  spec.qk_norm = spec.v_norm = true;
  spec.attn_scale = 1;
  // Two groups even if the window spans all positions, because their sizes differ.
  spec.kv_groups = {{.window = 0,
                     .n_kv_heads = full.n_kv_heads,
                     .head_dim = full.head_dim,
                     .keys_as_values = keys_as_values}};
  if (std::any_of(windows.begin(), windows.end(), [](int32_t w) { return w > 0; })) {
    spec.kv_groups.push_back({.window = window >= spec.max_positions ? 0 : window});
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    spec.layers[i].kv_group = spec.layers[i].rope = windows[i] > 0 ? 1 : 0;
  }
  ShareKeys(config, n_shared, spec);
  if (!wide_shared) return;
  for (LayerSpec& layer : spec.layers) {
    if (layer.kv_source >= 0) layer.mlp_width = 2 * spec.intermediate_size;
  }
}

// Checkpoints that can see and hear keep the text model's keys in the section text_config.
void ReadGemma4Multimodal(ConfigReader& config, ModelSpec& spec) {
  std::optional<ConfigReader> text = TextPart(config, spec);
  if (!text) return;
  ReadGemma4(*text, spec);
}

}  // namespace stagecoach::arch
