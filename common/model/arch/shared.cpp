#include "common/model/arch/shared.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace stagecoach::arch {

void ReadSizes(ConfigReader& config, const SizeDefaults& defaults, ModelSpec& spec) {
  spec.vocab_size = config.Int("vocab_size", 1, kMaxVocab, defaults.vocab_size);
  spec.hidden_size = config.Int("hidden_size", 1, kMaxWidth);
  spec.intermediate_size =
      config.Int("intermediate_size", 1, kMaxWidth, defaults.intermediate_size);
  spec.layers.resize(
      static_cast<size_t>(config.Int("num_hidden_layers", 1, kMaxLayers, defaults.n_layers)));
  spec.n_heads = config.Int("num_attention_heads", 1, kMaxHeads, defaults.n_heads);
  spec.n_kv_heads =
      config.Int("num_key_value_heads", 1, kMaxHeads, defaults.n_kv_heads.value_or(spec.n_heads));
  spec.max_positions =
      config.Int("max_position_embeddings", 1, kMaxPositions, defaults.max_positions);
  spec.norm_eps = config.Number("rms_norm_eps", 0, 0.1, defaults.norm_eps);
  if (!config.ok()) return;

  if (spec.n_heads % spec.n_kv_heads != 0) {
    config.Problem("num_key_value_heads",
                   fmt::format("{} does not divide num_attention_heads, which is {}",
                               spec.n_kv_heads, spec.n_heads));
  }
  if (!config.Has("head_dim") && !defaults.head_dim && spec.hidden_size % spec.n_heads != 0) {
    config.Problem(
        "head_dim",
        fmt::format("missing, and hidden_size {} is not a multiple of num_attention_heads {}",
                    spec.hidden_size, spec.n_heads));
    return;
  }
  spec.head_dim = config.Int("head_dim", 2, kMaxHeadDim,
                             defaults.head_dim.value_or(spec.hidden_size / spec.n_heads));
  if (spec.head_dim % 2 != 0) {
    config.Problem("head_dim", fmt::format("{} is odd; rotation needs pairs", spec.head_dim));
  }
}

std::optional<ConfigReader> TextPart(ConfigReader& config, ModelSpec& spec) {
  if (!config.Has("text_config")) {
    config.Problem("text_config", "missing");
    return std::nullopt;
  }
  spec.notes.emplace_back(
      "this checkpoint can also see images; it is served as a text model, without that part");
  return config.Section("text_config");
}

Activation ReadActivation(ConfigReader& config, std::string_view key, std::string_view or_else) {
  const std::string name = config.String(key, or_else);
  if (name == "relu") return Activation::kRelu;
  if (name == "relu2") return Activation::kReluSquared;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") {
    return Activation::kGeluTanh;
  }
  if (name == "silu" || name == "swish") return Activation::kSilu;
  config.Unsupported(key,
                     fmt::format("activation \"{}\" is not supported; supported are relu, relu2, "
                                 "gelu, gelu_pytorch_tanh and silu",
                                 name));
  return Activation::kSilu;
}

std::vector<bool> ReadLayerKinds(ConfigReader& config, const char* key, int32_t n_layers,
                                 std::string_view usual, std::string_view other) {
  const std::vector<std::string> kinds = config.Strings(key);
  if (!kinds.empty() && kinds.size() != static_cast<size_t>(n_layers)) {
    config.Problem(key, fmt::format("has {} entries for {} layers", kinds.size(), n_layers));
    return {};
  }
  std::vector<bool> are_other;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] != usual && kinds[i] != other) {
      config.Unsupported(key, fmt::format("layer {} is a \"{}\" layer; supported are {} and {}", i,
                                          kinds[i], usual, other));
      return {};
    }
    are_other.push_back(kinds[i] == other);
  }
  return are_other;
}

std::vector<int32_t> ReadLayerWindows(ConfigReader& config, int32_t n_layers, int32_t window,
                                      int32_t pattern) {
  const std::vector<bool> slide =
      ReadLayerKinds(config, "layer_types", n_layers, "full_attention", "sliding_attention");
  std::vector<int32_t> windows(static_cast<size_t>(n_layers), 0);
  for (int32_t i = 0; i < n_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    if (slide.empty() ? (i + 1) % pattern != 0 : slide[layer]) windows[layer] = window;
  }
  return windows;
}

std::vector<int32_t> ReadRotatingLayers(ConfigReader& config, int32_t n_layers) {
  std::vector<int32_t> rotates = config.IntOrInts("no_rope_layers", 0, 1);
  const int32_t interval = config.Int("no_rope_layer_interval", 1, kMaxLayers, 4);
  if (rotates.empty()) {
    for (int32_t i = 0; i < n_layers; ++i) rotates.push_back((i + 1) % interval != 0 ? 1 : 0);
  }
  if (rotates.size() < static_cast<size_t>(n_layers)) {
    config.Problem("no_rope_layers",
                   fmt::format("has {} entries for {} layers", rotates.size(), n_layers));
    rotates.resize(static_cast<size_t>(n_layers));
  }
  return rotates;
}

std::vector<int32_t> ReadQwenWindows(ConfigReader& config, int32_t n_layers) {
  const bool windowed = config.Bool("use_sliding_window", false);
  const int32_t window = windowed ? config.Int("sliding_window", 1, kMaxPositions, 4096) : 0;
  if (config.Has("layer_types")) return ReadLayerWindows(config, n_layers, window, /*pattern=*/1);
  std::vector<int32_t> windows(static_cast<size_t>(n_layers), 0);
  const int32_t first = config.Int("max_window_layers", 0, kMaxLayers, 28);
  for (int32_t i = first; i < n_layers; ++i) windows[static_cast<size_t>(i)] = window;
  return windows;
}

void SetKvGroups(std::span<const int32_t> windows, ModelSpec& spec, bool by_chunk) {
  for (size_t i = 0; i < windows.size(); ++i) {
    const bool is_full = windows[i] == 0 || windows[i] >= spec.max_positions;
    const KeyWindow window = is_full ? KeyWindow() : KeyWindow(windows[i], by_chunk);
    auto group = std::find_if(spec.kv_groups.begin(), spec.kv_groups.end(),
                              [&](const KvGroupSpec& g) { return g.window == window; });
    if (group == spec.kv_groups.end()) {
      group = spec.kv_groups.insert(group, KvGroupSpec{window});
    }
    spec.layers[i].kv_group = static_cast<int32_t>(group - spec.kv_groups.begin());
  }
}

void ReadExperts(ConfigReader& config, std::string_view count_key, const ExpertSpec& defaults,
                 int32_t width, ModelSpec& spec) {
  ExpertSpec& experts = spec.experts;
  experts.n_experts = config.Int(count_key, 1, kMaxExperts, defaults.n_experts);
  experts.n_used = config.Int("num_experts_per_tok", 1, kMaxExperts, defaults.n_used);
  experts.intermediate_size = width;
  experts.weights_over_used = defaults.weights_over_used;
  if (config.ok() && experts.n_used > experts.n_experts) {
    config.Problem("num_experts_per_tok", fmt::format("{} is more than the model's {} experts",
                                                      experts.n_used, experts.n_experts));
  }
}

void ReadQwenSparseLayers(ConfigReader& config, ModelSpec& spec) {
  const int32_t step = config.Int("decoder_sparse_step", 1, kMaxLayers, 1);
  const std::vector<int32_t> dense = config.IntOrInts("mlp_only_layers", 0, kMaxLayers);
  if (!config.ok()) return;
  for (int32_t i = 0; i < spec.n_layers(); ++i) {
    spec.layers[static_cast<size_t>(i)].has_experts =
        (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
  }
}

void CheckExpertGroups(ConfigReader& config, int32_t n_groups, int32_t n_used_groups,
                       int32_t least_size, const ModelSpec& spec) {
  if (!config.ok()) return;
  const int32_t n_experts = spec.experts.n_experts, size = n_experts / n_groups;
  if (n_experts % n_groups != 0 || (n_groups > 1 && size < least_size)) {
    config.Problem("n_group", fmt::format("{} experts do not form {} groups of {} or more",
                                          n_experts, n_groups, least_size));
  } else if (n_used_groups > n_groups) {
    config.Problem("topk_group",
                   fmt::format("{} is more than n_group, which is {}", n_used_groups, n_groups));
  } else if (n_used_groups * size < spec.experts.n_used) {
    config.Problem("topk_group", fmt::format("{} groups of {} have fewer experts than the {} that "
                                             "a token uses",
                                             n_used_groups, size, spec.experts.n_used));
  }
}

void ReadSigmoidRouting(ConfigReader& config, ModelSpec& spec) {
  const SigmoidRouting routing{
      .n_groups = config.Int("n_group", 1, kMaxExperts, 1),
      .n_used_groups = config.Int("topk_group", 1, kMaxExperts, 1),
      .factor = static_cast<float>(config.Number("routed_scaling_factor", 0, 1e6, 1.0))};
  spec.experts.sigmoid = routing;
  // A group counts as much as its best two.
  CheckExpertGroups(config, routing.n_groups, routing.n_used_groups, /*least_size=*/2, spec);
}

float UsualAttentionScale(const ModelSpec& spec) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
}

TensorNames LlamaTensorNames() {
  TensorNames names;
  names.embed = "model.embed_tokens";
  names.final_norm = "model.norm";
  names.lm_head = "lm_head";
  names.attn_norm = "model.layers.{}.input_layernorm";
  names.q = "model.layers.{}.self_attn.q_proj";
  names.k = "model.layers.{}.self_attn.k_proj";
  names.v = "model.layers.{}.self_attn.v_proj";
  names.o = "model.layers.{}.self_attn.o_proj";
  names.mlp_norm = "model.layers.{}.post_attention_layernorm";
  names.gate = "model.layers.{}.mlp.gate_proj";
  names.up = "model.layers.{}.mlp.up_proj";
  names.down = "model.layers.{}.mlp.down_proj";
  return names;
}

void SetExpertNames(TensorNames& names) {
  names.router = "model.layers.{}.mlp.gate";
  names.expert_gate = "model.layers.{}.mlp.experts.{}.gate_proj";
  names.expert_up = "model.layers.{}.mlp.experts.{}.up_proj";
  names.expert_down = "model.layers.{}.mlp.experts.{}.down_proj";
}

void MayFuseExperts(TensorNames& names) {
  names.fused_expert_up = "model.layers.{}.mlp.experts.gate_up_proj";
  names.fused_expert_down = "model.layers.{}.mlp.experts.down_proj";
}

void SetGemmaCommon(ConfigReader& config, ModelSpec& spec) {
  spec.norm = NormKind::kRmsPlusOne;
  spec.names = LlamaTensorNames();
  spec.activation =
      ReadActivation(config, config.Has("hidden_activation") ? "hidden_activation" : "hidden_act",
                     "gelu_pytorch_tanh");
  spec.tied_embedding = config.Bool("tie_word_embeddings", true);
  spec.qkv_bias = spec.o_bias = config.Bool("attention_bias", false);
  spec.embed_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.hidden_size)));
  if (config.Bool("use_bidirectional_attention", false)) {
    config.Unsupported("use_bidirectional_attention", "only causal attention is supported");
  }
}

void SetGemmaNormsAndCaps(ConfigReader& config, double attn_softcap, double logit_softcap,
                          ModelSpec& spec) {
  spec.norm_placement = NormPlacement::kBeforeAndAfter;
  spec.names.post_attn_norm = "model.layers.{}.post_attention_layernorm";
  spec.names.mlp_norm = "model.layers.{}.pre_feedforward_layernorm";
  spec.names.post_mlp_norm = "model.layers.{}.post_feedforward_layernorm";
  spec.attn_scale =
      static_cast<float>(1.0 / std::sqrt(config.Number("query_pre_attn_scalar", 1e-3, 1e6, 256)));
  const auto softcap = [&](std::string_view key, double or_else) {
    return static_cast<float>(config.Number(key, 0, 1e6, config.Mentions(key) ? 0 : or_else));
  };
  spec.attn_softcap = softcap("attn_logit_softcapping", attn_softcap);
  spec.logit_softcap = softcap("final_logit_softcapping", logit_softcap);
}

}  // namespace stagecoach::arch
