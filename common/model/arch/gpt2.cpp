// GPT-2: LayerNorm before each block, learned positions, biases everywhere. q, k and v are one
// tensor, and the layers' matrices are stored as [inputs, outputs].
#include <fmt/format.h>

#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadGpt2(ConfigReader& config, ModelSpec& spec) {
  spec.vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  spec.hidden_size = config.Int("n_embd", 1, kMaxWidth);
  spec.intermediate_size = config.Int("n_inner", 1, kMaxWidth, 4 * spec.hidden_size);
  spec.layers.resize(static_cast<size_t>(config.Int("n_layer", 1, kMaxLayers)));
  spec.n_heads = spec.n_kv_heads = config.Int("n_head", 1, kMaxHeads);
  spec.max_positions = config.Int("n_positions", 1, kMaxPositions, 1024);
  spec.activation = ReadActivation(config, "activation_function", "gelu_new");
  spec.norm_eps = config.Number("layer_norm_epsilon", 0, 0.1, 1e-5);
  spec.tied_embedding = config.Bool("tie_word_embeddings", true);
  const bool scaled = config.Bool("scale_attn_weights", true);
  if (config.Bool("scale_attn_by_inverse_layer_idx", false)) {
    config.Unsupported("scale_attn_by_inverse_layer_idx",
                       "only one scale for all layers is supported");
  }
  if (config.Bool("add_cross_attention", false)) {
    config.Unsupported("add_cross_attention", "only decoders are supported");
  }
  if (!config.ok()) return;
  if (spec.hidden_size % spec.n_heads != 0) {
    config.Problem(
        "n_embd", fmt::format("{} is not a multiple of n_head {}", spec.hidden_size, spec.n_heads));
    return;
  }
  spec.head_dim = spec.hidden_size / spec.n_heads;
  spec.attn_scale = scaled ? UsualAttentionScale(spec) : 1.0f;
  spec.norm = NormKind::kLayerNorm;
  spec.gated_mlp = false;
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = true;
  spec.transposed_linears = true;
  spec.learned_positions = true;
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), 0), spec);

  TensorNames& names = spec.names;
  names.embed = "transformer.wte";
  names.positions = "transformer.wpe";
  names.final_norm = "transformer.ln_f";
  names.lm_head = "lm_head";
  names.attn_norm = "transformer.h.{}.ln_1";
  names.qkv = "transformer.h.{}.attn.c_attn";
  names.o = "transformer.h.{}.attn.c_proj";
  names.mlp_norm = "transformer.h.{}.ln_2";
  names.up = "transformer.h.{}.mlp.c_fc";
  names.down = "transformer.h.{}.mlp.c_proj";
}

}  // namespace stagecoach::arch
