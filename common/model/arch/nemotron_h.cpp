// Nemotron-H (also Nemotron Nano 2 and 3): each layer is one part: a state-space layer (Mamba-2),
// attention without rotation, an MLP with squared ReLU, or experts of such MLPs beside a shared
// one.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {
namespace {

constexpr int32_t kMaxStateSize = 1024;
constexpr int32_t kMaxConvWidth = 64;

// One letter per layer: M, *, - and E.
std::string ReadPattern(ConfigReader& config) {
  std::string pattern = config.String("hybrid_override_pattern", "");
  if (!pattern.empty()) return pattern;
  const char* const key = config.Has("layers_block_type") ? "layers_block_type" : "layer_types";
  const std::vector<std::string> types = config.Strings(key);
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string& type = types[i];
    if (type == "linear_attention" || type == "mamba") {
      pattern += 'M';
    } else if (type == "full_attention" || type == "attention") {
      pattern += '*';
    } else if (type == "mlp") {
      pattern += '-';
    } else if (type == "moe") {
      pattern += 'E';
    } else {
      config.Unsupported(key, fmt::format("layer {} is a \"{}\" layer; supported are "
                                          "linear_attention, full_attention, mlp and moe",
                                          i, type));
    }
  }
  if (pattern.empty()) config.Problem("hybrid_override_pattern", "missing");
  return pattern;
}

void SetLayers(ConfigReader& config, std::string_view pattern, ModelSpec& spec) {
  if (pattern.size() != spec.layers.size()) {
    config.Problem("hybrid_override_pattern",
                   fmt::format("names {} layers, num_hidden_layers is {}", pattern.size(),
                               spec.layers.size()));
    return;
  }
  for (size_t i = 0; i < pattern.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.rope = -1;
    layer.has_mixer = pattern[i] == 'M' || pattern[i] == '*';
    layer.has_mlp = !layer.has_mixer;
    layer.is_recurrent = pattern[i] == 'M';
    layer.has_experts = pattern[i] == 'E';
    if (std::string_view("M*-E").find(pattern[i]) == std::string_view::npos) {
      config.Unsupported(
          "hybrid_override_pattern",
          fmt::format("layer {} is '{}'; supported are M, *, - and E", i, pattern[i]));
      return;
    }
  }
}

void ReadStateSpace(ConfigReader& config, ModelSpec& spec) {
  RecurrentSpec& recurrent = spec.recurrent.emplace();
  RecurrentShape& shape = recurrent.shape;
  shape.kind = RecurrentKind::kStateSpace;
  shape.n_key_heads = config.Int("n_groups", 1, kMaxHeads, 8);
  shape.n_value_heads = config.Int("mamba_num_heads", 1, kMaxHeads, 128);
  shape.key_dim = config.Int("ssm_state_size", 1, kMaxStateSize, 128);
  shape.value_dim = config.Int("mamba_head_dim", 1, kMaxHeadDim, 64);
  shape.conv_width = config.Int("conv_kernel", 2, kMaxConvWidth, 4);
  recurrent.conv_bias = config.Bool("use_conv_bias", true);
  if (config.ok() && shape.n_value_heads % shape.n_key_heads != 0) {
    config.Problem("mamba_num_heads", fmt::format("{} is not a multiple of n_groups, which is {}",
                                                  shape.n_value_heads, shape.n_key_heads));
  }
  if (config.String("mamba_hidden_act", "silu") != "silu") {
    config.Unsupported("mamba_hidden_act", "only silu is supported");
  }
  const std::vector<double> limit = config.Numbers("time_step_limit");
  if (!limit.empty() && (limit.size() != 2 || limit[0] != 0 || !std::isinf(limit[1]))) {
    config.Unsupported("time_step_limit",
                       "only [0, Infinity] is supported, as in published models");
  }
  for (const char* const key : {"use_bias", "mamba_proj_bias"}) {
    if (config.Bool(key, false)) config.Unsupported(key, "biases of projections are not supported");
  }
  recurrent.all = "backbone.layers.{}.mixer.in_proj";
  recurrent.conv = "backbone.layers.{}.mixer.conv1d";
  recurrent.a_log = "backbone.layers.{}.mixer.A_log";
  recurrent.dt_bias = "backbone.layers.{}.mixer.dt_bias";
  recurrent.skip = "backbone.layers.{}.mixer.D";
  recurrent.norm = "backbone.layers.{}.mixer.norm";
  recurrent.out = "backbone.layers.{}.mixer.out_proj";
}

void ReadSparse(ConfigReader& config, ModelSpec& spec) {
  ReadExperts(
      config, "n_routed_experts",
      {.n_experts = 8, .n_used = 2, .weights_over_used = config.Bool("norm_topk_prob", true)},
      config.Int("moe_intermediate_size", 1, kMaxWidth, 7688), spec);
  ReadSigmoidRouting(config, spec);
  spec.shared_expert.intermediate_size =
      config.Int("moe_shared_expert_intermediate_size", 1, kMaxWidth, 7688);
  if (config.Has("moe_latent_size")) {
    config.Unsupported("moe_latent_size", "experts of a projection are not supported");
  }
  if (config.Int("n_shared_experts", 0, kMaxExperts, 1) != 1) {
    config.Unsupported("n_shared_experts", "only one shared expert is supported");
  }
  if (spec.mlp_bias) config.Unsupported("mlp_bias", "biases of experts are not supported");
  TensorNames& names = spec.names;
  names.router = "backbone.layers.{}.mixer.gate";
  names.router_correction = "backbone.layers.{}.mixer.gate.e_score_correction_bias";
  names.expert_up = "backbone.layers.{}.mixer.experts.{}.up_proj";
  names.expert_down = "backbone.layers.{}.mixer.experts.{}.down_proj";
  names.fused_expert_up = "backbone.layers.{}.mixer.experts.up_proj";
  names.fused_expert_down = "backbone.layers.{}.mixer.experts.down_proj";
  spec.shared_expert.up = "backbone.layers.{}.mixer.shared_experts.up_proj";
  spec.shared_expert.down = "backbone.layers.{}.mixer.shared_experts.down_proj";
}

void SetNemotronHNames(TensorNames& names) {
  names.embed = "backbone.embeddings";
  names.final_norm = "backbone.norm_f";
  names.lm_head = "lm_head";
  names.attn_norm = names.mlp_norm = "backbone.layers.{}.norm";
  names.q = "backbone.layers.{}.mixer.q_proj";
  names.k = "backbone.layers.{}.mixer.k_proj";
  names.v = "backbone.layers.{}.mixer.v_proj";
  names.o = "backbone.layers.{}.mixer.o_proj";
  names.up = "backbone.layers.{}.mixer.up_proj";
  names.down = "backbone.layers.{}.mixer.down_proj";
}

}  // namespace

void ReadNemotronH(ConfigReader& config, ModelSpec& spec) {
  const std::string pattern = ReadPattern(config);
  SizeDefaults defaults{.vocab_size = 131072,
                        .n_layers = static_cast<int32_t>(pattern.size()),
                        .n_heads = 32,
                        .intermediate_size = 21504,
                        .max_positions = 4096,
                        .norm_eps = config.Number("layer_norm_epsilon", 0, 0.1, 1e-5)};
  // The first files have this name.
  defaults.head_dim = config.Int("attention_head_dim", 2, kMaxHeadDim, 128);
  if (!config.Mentions("num_key_value_heads")) defaults.n_kv_heads = 8;
  ReadSizes(config, defaults, spec);
  spec.activation = ReadActivation(config, "mlp_hidden_act", "relu2");
  spec.gated_mlp = false;
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.qkv_bias = spec.o_bias = config.Bool("attention_bias", false);
  spec.mlp_bias = config.Bool("mlp_bias", false);
  if (config.Has("sliding_window")) config.Unsupported("sliding_window", "is not supported");
  ReadStateSpace(config, spec);
  SetNemotronHNames(spec.names);
  if (!config.ok()) return;
  SetLayers(config, pattern, spec);
  if (pattern.find('E') != std::string::npos) ReadSparse(config, spec);
  spec.attn_scale = UsualAttentionScale(spec);
  spec.kv_groups = {KvGroupSpec{}};
}

}  // namespace stagecoach::arch
