// OPT: LayerNorm before each block (opt-350m: after each block, and none at the end), learned
// positions from row 2 on, ReLU, biases everywhere. opt-350m projects a narrower embedding.
#include <fmt/format.h>

#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadOpt(ConfigReader& config, ModelSpec& spec) {
  spec.vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  spec.hidden_size = config.Int("hidden_size", 1, kMaxWidth);
  spec.intermediate_size = config.Int("ffn_dim", 1, kMaxWidth);
  spec.layers.resize(static_cast<size_t>(config.Int("num_hidden_layers", 1, kMaxLayers)));
  spec.n_heads = spec.n_kv_heads = config.Int("num_attention_heads", 1, kMaxHeads);
  spec.max_positions = config.Int("max_position_embeddings", 1, kMaxPositions, 2048);
  spec.activation = ReadActivation(config, "activation_function", "relu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", true);
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = config.Bool("enable_bias", true);
  const bool norm_before = config.Bool("do_layer_norm_before", true);
  spec.norm_placement = norm_before ? NormPlacement::kBefore : NormPlacement::kAfterSum;
  const bool final_norm = norm_before && !config.Bool("_remove_final_layer_norm", false);
  spec.embed_size = config.Int("word_embed_proj_dim", 1, kMaxWidth, spec.hidden_size);
  if (!config.Bool("layer_norm_elementwise_affine", true)) {
    config.Unsupported("layer_norm_elementwise_affine", "norms without weights are not supported");
  }
  if (!config.ok()) return;
  if (spec.hidden_size % spec.n_heads != 0) {
    config.Problem("hidden_size", fmt::format("{} is not a multiple of num_attention_heads {}",
                                              spec.hidden_size, spec.n_heads));
    return;
  }
  spec.head_dim = spec.hidden_size / spec.n_heads;
  spec.attn_scale = UsualAttentionScale(spec);
  spec.norm = NormKind::kLayerNorm;
  spec.norm_eps = 1e-5;
  spec.gated_mlp = false;
  spec.learned_positions = true;
  spec.position_offset = 2;
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), 0), spec);

  TensorNames& names = spec.names;
  names.embed = "model.decoder.embed_tokens";
  names.positions = "model.decoder.embed_positions";
  if (final_norm) names.final_norm = "model.decoder.final_layer_norm";
  if (spec.embed_size != spec.hidden_size) {
    names.project_in = "model.decoder.project_in";
    names.project_out = "model.decoder.project_out";
  }
  names.lm_head = "lm_head";
  names.attn_norm = "model.decoder.layers.{}.self_attn_layer_norm";
  names.q = "model.decoder.layers.{}.self_attn.q_proj";
  names.k = "model.decoder.layers.{}.self_attn.k_proj";
  names.v = "model.decoder.layers.{}.self_attn.v_proj";
  names.o = "model.decoder.layers.{}.self_attn.out_proj";
  names.mlp_norm = "model.decoder.layers.{}.final_layer_norm";
  names.up = "model.decoder.layers.{}.fc1";
  names.down = "model.decoder.layers.{}.fc2";
}

}  // namespace stagecoach::arch
