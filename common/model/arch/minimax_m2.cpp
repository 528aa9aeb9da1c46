// MiniMax-M2: norms over all heads of q and of k, rotation of a part of each head, and experts
// chosen by sigmoid in every layer.
#include <algorithm>

#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {
namespace {

// Some files give the rotated part of a head in place of its share. The half makes the product with
// head_dim round down to that number.
double RotatedPart(ConfigReader& config, const ModelSpec& spec) {
  if (!config.Has("rotary_dim")) return 1.0;
  return std::min(1.0,
                  (config.Int("rotary_dim", 2, kMaxHeadDim) + 0.5) / std::max(spec.head_dim, 1));
}

}  // namespace

void ReadMiniMaxM2(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config, {.n_kv_heads = 8, .head_dim = 128, .max_positions = 196608}, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.ropes = {ReadRope(config, 5e6, spec, RotatedPart(config, spec))};
  ReadExperts(config, "num_local_experts", {.n_experts = 256, .n_used = 8}, spec.intermediate_size,
              spec);
  ReadSigmoidRouting(config, spec);
  if (config.String("scoring_func", "sigmoid") != "sigmoid") {
    config.Unsupported("scoring_func", "only \"sigmoid\" is supported");
  }
  if (!config.Bool("use_qk_norm", true) ||
      config.String("qk_norm_type", "per_layer") != "per_layer") {
    config.Unsupported("qk_norm_type", "only norms over all heads (\"per_layer\") are supported");
  }
  if (config.Int("shared_intermediate_size", 0, kMaxWidth, 0) > 0) {
    config.Unsupported("shared_intermediate_size", "shared experts are not supported");
  }
  // 1: full attention
  for (const int32_t type : config.IntOrInts("attn_type_list", 0, 100)) {
    if (type == 1) continue;
    config.Unsupported("attn_type_list", "only layers with full attention (1) are supported");
    break;
  }
  spec.n_unused_layers = config.Int("num_mtp_modules", 0, kMaxLayers, 0);
  if (!config.ok()) return;
  for (LayerSpec& layer : spec.layers) layer.has_experts = true;
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), 0), spec);
  TensorNames& names = spec.names = LlamaTensorNames();
  spec.qk_norm = spec.qk_norm_all_heads = true;
  names.q_norm = "model.layers.{}.self_attn.q_norm";
  names.k_norm = "model.layers.{}.self_attn.k_norm";
  names.router = "model.layers.{}.block_sparse_moe.gate";
  if (config.Bool("use_routing_bias", true)) {
    names.router_correction = "model.layers.{}.block_sparse_moe.e_score_correction_bias";
  }
  names.expert_gate = "model.layers.{}.block_sparse_moe.experts.{}.w1";
  names.expert_down = "model.layers.{}.block_sparse_moe.experts.{}.w2";
  names.expert_up = "model.layers.{}.block_sparse_moe.experts.{}.w3";
}

}  // namespace stagecoach::arch
