// DeepSeek V2, V3 and R1, Kimi K2, GLM-4.7-Flash and Mistral Small 4: latent attention; some dense
// layers, then layers with experts beside shared ones.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {
namespace {

LatentSpec ReadLatent(ConfigReader& config) {
  LatentSpec latent;
  if (config.Has("q_lora_rank")) latent.q_rank = config.Int("q_lora_rank", 1, kMaxWidth);
  latent.kv_rank = config.Int("kv_lora_rank", 1, kMaxWidth);
  latent.nope_dim = config.Int("qk_nope_head_dim", 1, kMaxHeadDim);
  latent.rope_dim = config.Int("qk_rope_head_dim", 2, kMaxHeadDim / 2);
  latent.value_dim = config.Int("v_head_dim", 1, kMaxHeadDim);
  latent.interleaved = config.Bool("rope_interleave", true);
  for (const auto& [key, dim] :
       {std::pair("kv_lora_rank", latent.kv_rank), std::pair("v_head_dim", latent.value_dim)}) {
    if (dim % kLatentMultiple == 0) continue;
    config.Unsupported(
        key, fmt::format("{} is not supported: it is no multiple of {}", dim, kLatentMultiple));
  }
  if (latent.kv_rank > kMaxLatentRank) {
    config.Unsupported("kv_lora_rank", fmt::format("{} is not supported, at most {} is",
                                                   latent.kv_rank, kMaxLatentRank));
  }
  if (latent.rope_dim % 2 != 0) {
    config.Problem("qk_rope_head_dim",
                   fmt::format("{} is odd; rotation needs pairs", latent.rope_dim));
  }
  const std::string attention = "model.layers.{}.self_attn.";
  latent.q_down = attention + "q_a_proj";
  latent.q_norm = attention + "q_a_layernorm";
  latent.q = attention + (latent.q_rank > 0 ? "q_b_proj" : "q_proj");
  latent.kv_down = attention + "kv_a_proj_with_mqa";
  latent.kv_norm = attention + "kv_a_layernorm";
  latent.kv_up = attention + "kv_b_proj";
  return latent;
}

// YaRN stretches scores as well, by mscale_all_dim.
double ScoreFactor(ConfigReader& config) {
  ConfigReader section = RopeSection(config);
  const double all_dims = section.Number("mscale_all_dim", 0, 1e6, 0.0);
  const double factor = section.Number("factor", 1.0, 1e6, 1.0);
  const double scale = all_dims > 0 ? 0.1 * all_dims * std::log(factor) + 1 : 1.0;
  return scale * scale;
}

// What partial_rotary_factor is a part of: a whole head (Mistral), or its rotated part.
enum class PartOf : uint8_t { kHead, kRotatedPart };

void ReadAttention(ConfigReader& config, PartOf part_of, ModelSpec& spec) {
  const LatentSpec latent = ReadLatent(config);
  if (config.Bool("attention_bias", false)) {
    config.Unsupported("attention_bias", "biases of latent attention are not supported");
  }
  spec.n_kv_heads = 1;
  spec.head_dim = part_of == PartOf::kHead ? latent.query_dim() : latent.rope_dim;
  const RopeSpec rope =
      ReadRope(config, 10000.0, spec, static_cast<double>(latent.rope_dim) / spec.head_dim);
  if (config.ok() && rope.rotary_dim != latent.rope_dim) {
    config.Problem("partial_rotary_factor",
                   fmt::format("rotates {} numbers of a head, but qk_rope_head_dim is {}",
                               rope.rotary_dim, latent.rope_dim));
  }
  spec.ropes = {rope};
  spec.head_dim = latent.latent_dim();
  spec.attn_scale =
      static_cast<float>(ScoreFactor(config) / std::sqrt(static_cast<double>(latent.query_dim())));
  spec.latent = latent;
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), 0), spec);
}

void ReadLayers(ConfigReader& config, int32_t n_dense_or_else, ModelSpec& spec) {
  const int32_t n_dense = config.Int("first_k_dense_replace", 0, kMaxLayers, n_dense_or_else);
  const int32_t every = config.Int("moe_layer_freq", 1, kMaxLayers, 1);
  const int32_t n_shared = config.Int("n_shared_experts", 0, kMaxExperts, 0);
  spec.n_unused_layers = config.Int("num_nextn_predict_layers", 0, kMaxLayers, 0);
  if (!config.ok()) return;
  const int32_t width = spec.experts.intermediate_size;
  if (int64_t{width} * n_shared > kMaxWidth) {
    config.Problem("n_shared_experts", "too many");
    return;
  }
  spec.shared_expert.intermediate_size = width * n_shared;
  for (int32_t i = n_dense; i < spec.n_layers(); ++i) {
    spec.layers[static_cast<size_t>(i)].has_experts = i % every == 0;
  }
}

void ReadModel(ConfigReader& config, const SizeDefaults& sizes, const ExpertSpec& experts,
               int32_t n_dense, PartOf part_of, ModelSpec& spec) {
  ReadSizes(config, sizes, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  ReadExperts(config, "n_routed_experts", experts,
              config.Int("moe_intermediate_size", 1, kMaxWidth), spec);
  ReadLayers(config, n_dense, spec);
  ReadAttention(config, part_of, spec);
  TensorNames& names = spec.names = LlamaTensorNames();
  SetExpertNames(names);
  spec.shared_expert.gate = "model.layers.{}.mlp.shared_experts.gate_proj";
  spec.shared_expert.up = "model.layers.{}.mlp.shared_experts.up_proj";
  spec.shared_expert.down = "model.layers.{}.mlp.shared_experts.down_proj";
}

// Reads which layers have experts. transformers writes this in place of first_k_dense_replace.
void ReadMlpTypes(ConfigReader& config, ModelSpec& spec) {
  const std::vector<bool> are_sparse =
      ReadLayerKinds(config, "mlp_layer_types", spec.n_layers(), "dense", "sparse");
  for (size_t i = 0; i < are_sparse.size(); ++i) spec.layers[i].has_experts = are_sparse[i];
}

// `key` has another value than the only one that such models have.
void NeedValue(ConfigReader& config, const char* key, std::string_view wanted) {
  if (config.String(key, wanted) == wanted) return;
  config.Unsupported(key, fmt::format("only \"{}\" is supported", wanted));
}

}  // namespace

void ReadDeepseekV2(ConfigReader& config, ModelSpec& spec) {
  NeedValue(config, "scoring_func", "softmax");
  if (config.Bool("norm_topk_prob", false)) {
    config.Unsupported("norm_topk_prob", "only false is supported");
  }
  ReadModel(config, {.vocab_size = 102400, .head_dim = 64, .max_positions = 2048},
            {.n_experts = 64, .n_used = 6, .weights_over_used = false}, /*n_dense=*/0,
            PartOf::kRotatedPart, spec);
  SoftmaxGroups groups{.factor =
                           static_cast<float>(config.Number("routed_scaling_factor", 0, 1e6, 1.0))};
  const std::string method = config.String("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    groups.n_groups = config.Int("n_group", 1, kMaxExperts);
    groups.n_used_groups = config.Int("topk_group", 1, kMaxExperts);
    CheckExpertGroups(config, groups.n_groups, groups.n_used_groups, /*least_size=*/1, spec);
  } else if (method != "greedy") {
    config.Unsupported("topk_method",
                       fmt::format("\"{}\" is not supported; supported are greedy and "
                                   "group_limited_greedy",
                                   method));
  }
  spec.experts.softmax_groups = groups;
}

namespace {

void ReadModelOfV3(ConfigReader& config, const SizeDefaults& sizes, int32_t n_experts,
                   int32_t n_used, int32_t n_dense, ModelSpec& spec) {
  NeedValue(config, "scoring_func", "sigmoid");
  NeedValue(config, "topk_method", "noaux_tc");
  ReadModel(config, sizes,
            {.n_experts = n_experts,
             .n_used = n_used,
             .weights_over_used = config.Bool("norm_topk_prob", true)},
            n_dense, PartOf::kRotatedPart, spec);
  ReadSigmoidRouting(config, spec);
  spec.names.router_correction = "model.layers.{}.mlp.gate.e_score_correction_bias";
}

}  // namespace

void ReadDeepseekV3(ConfigReader& config, ModelSpec& spec) {
  ReadModelOfV3(config, {.vocab_size = 129280, .head_dim = 64, .max_positions = 4096},
                /*n_experts=*/256, /*n_used=*/8, /*n_dense=*/3, spec);
}

void ReadGlm4MoeLite(ConfigReader& config, ModelSpec& spec) {
  ReadModelOfV3(config,
                {.vocab_size = 154880, .head_dim = 64, .max_positions = 202752, .norm_eps = 1e-5},
                /*n_experts=*/64, /*n_used=*/4, /*n_dense=*/1, spec);
  ReadMlpTypes(config, spec);
}

void ReadMistral4(ConfigReader& config, ModelSpec& spec) {
  ReadModel(
      config, {.vocab_size = 131072, .head_dim = 128, .max_positions = 1048576},
      {.n_experts = 128, .n_used = 4, .weights_over_used = config.Bool("norm_topk_prob", true)},
      /*n_dense=*/0, PartOf::kHead, spec);
  ReadQueryScaling(config, spec);
  spec.experts.softmax_groups.factor =
      static_cast<float>(config.Number("routed_scaling_factor", 0, 1e6, 1.0));
  // Here a group counts as much as its best two experts together, unlike DeepSeek V2's.
  if (config.Int("n_group", 1, kMaxExperts, 1) > 1) {
    config.Unsupported("n_group", "only one group is supported, as in published models");
  }
  MayFuseExperts(spec.names);
}

}  // namespace stagecoach::arch
