// Llama 4: three layers with rotation, which see their chunk of positions only, are followed by one
// without rotation, which sees all and whose queries grow with the position. A token has one
// expert, whose input is weighted, beside a shared one; Maverick has experts in every other layer.
#include <algorithm>

#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {
namespace {

// The chunk of each layer; 0: it sees all positions.
std::vector<int32_t> ReadChunks(ConfigReader& config, const std::vector<int32_t>& rotates,
                                int32_t n_layers) {
  const int32_t chunk = config.Int("attention_chunk_size", 1, kMaxPositions, 8192);
  const std::vector<bool> are_chunked =
      ReadLayerKinds(config, "layer_types", n_layers, "full_attention", "chunked_attention");
  std::vector<int32_t> chunks(static_cast<size_t>(n_layers), 0);
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (are_chunked.empty() ? rotates[i] != 0 : are_chunked[i]) chunks[i] = chunk;
  }
  return chunks;
}

void ReadLayersWithExperts(ConfigReader& config, ModelSpec& spec) {
  const int32_t step = config.Int("interleave_moe_layer_step", 1, kMaxLayers, 1);
  const bool has_list = config.Has("moe_layers");
  const std::vector<int32_t> list = config.IntOrInts("moe_layers", 0, kMaxLayers);
  for (int32_t i = 0; i < spec.n_layers(); ++i) {
    spec.layers[static_cast<size_t>(i)].has_experts =
        has_list ? std::find(list.begin(), list.end(), i) != list.end() : (i + 1) % step == 0;
  }
}

void SetNames(ModelSpec& spec) {
  TensorNames& names = spec.names = LlamaTensorNames();
  names.gate = "model.layers.{}.feed_forward.gate_proj";
  names.up = "model.layers.{}.feed_forward.up_proj";
  names.down = "model.layers.{}.feed_forward.down_proj";
  names.router = "model.layers.{}.feed_forward.router";
  // Quantized checkpoints have a matrix for each expert.
  names.expert_gate = "model.layers.{}.feed_forward.experts.{}.gate_proj";
  names.expert_up = "model.layers.{}.feed_forward.experts.{}.up_proj";
  names.expert_down = "model.layers.{}.feed_forward.experts.{}.down_proj";
  names.stacked_gate_up = "model.layers.{}.feed_forward.experts.gate_up_proj";
  names.stacked_down = "model.layers.{}.feed_forward.experts.down_proj";
  names.gate_before_up = true;
  spec.shared_expert.gate = "model.layers.{}.feed_forward.shared_expert.gate_proj";
  spec.shared_expert.up = "model.layers.{}.feed_forward.shared_expert.up_proj";
  spec.shared_expert.down = "model.layers.{}.feed_forward.shared_expert.down_proj";
}

}  // namespace

void ReadLlama4(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config,
            {.vocab_size = 202048,
             .n_heads = 40,
             .n_kv_heads = 8,
             .head_dim = 128,
             .intermediate_size = 8192,
             .max_positions = 131072,
             .norm_eps = 1e-5},
            spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.qkv_bias = spec.o_bias = config.Bool("attention_bias", false);
  spec.plain_qk_norm = config.Bool("use_qk_norm", true);
  spec.ropes = {ReadRope(config, 500000.0, spec)};
  const int32_t n_layers = spec.n_layers();
  const std::vector<int32_t> rotates = ReadRotatingLayers(config, n_layers);
  const std::vector<int32_t> chunks = ReadChunks(config, rotates, n_layers);
  ReadExperts(config, "num_local_experts",
              {.n_experts = 16, .n_used = 1, .weights_over_used = true}, spec.intermediate_size,
              spec);
  if (spec.experts.n_used != 1) {
    config.Unsupported("num_experts_per_tok",
                       "only one expert for each token is supported, as in published models");
  }
  spec.experts.scales_input = true;
  spec.shared_expert.intermediate_size = spec.intermediate_size;
  spec.intermediate_size = config.Int("intermediate_size_mlp", 1, kMaxWidth, 16384);
  ReadLayersWithExperts(config, spec);
  const QueryScaling scaling{.beta = static_cast<float>(config.Number("attn_scale", 0, 1e3, 0.1)),
                             .step = config.Int("floor_scale", 1, kMaxPositions, 8192),
                             .offset = 1};
  if (config.BoolOrNumber("attn_temperature_tuning", true)) spec.query_scaling = scaling;
  if (!config.ok()) return;
  spec.attn_scale = UsualAttentionScale(spec);
  spec.neighbours_rotate = true;
  SetKvGroups(chunks, spec, /*by_chunk=*/true);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].rope = rotates[i] != 0 ? 0 : -1;
    spec.layers[i].scales_queries = rotates[i] == 0;
  }
  SetNames(spec);
}

// Checkpoints that can see keep the text model's keys in the section text_config.
void ReadLlama4Multimodal(ConfigReader& config, ModelSpec& spec) {
  std::optional<ConfigReader> text = TextPart(config, spec);
  if (!text) return;
  ReadLlama4(*text, spec);
  if (config.Has("tie_word_embeddings")) {
    spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  }
}

}  // namespace stagecoach::arch
