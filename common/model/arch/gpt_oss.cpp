// gpt-oss: attention with sinks and biases, every other layer with a window, and in every layer
// experts with biases and a clamped activation. Their published form is MXFP4.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadGptOss(ConfigReader& config, ModelSpec& spec) {
  ReadSizes(config, {.n_kv_heads = 8, .head_dim = 64, .max_positions = 131072, .norm_eps = 1e-5},
            spec);
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.qkv_bias = spec.o_bias = config.Bool("attention_bias", true);
  // The published files name no dtype.
  if (!config.Has("dtype") && !config.Has("torch_dtype")) spec.stored_dtype = DType::kBF16;
  NeedRopeParameters(config);
  spec.ropes = {ReadRope(config, 150000.0, spec)};
  const int32_t window = config.Int("sliding_window", 1, kMaxPositions, 128);
  const std::vector<int32_t> windows =
      ReadLayerWindows(config, spec.n_layers(), window, /*pattern=*/2);
  const char* const count = config.Has("num_local_experts") ? "num_local_experts" : "num_experts";
  ReadExperts(config, count, {.n_experts = 128, .n_used = 4}, spec.intermediate_size, spec);
  spec.clamped_glu = {.limit = static_cast<float>(config.Number("swiglu_limit", 1e-3, 1e6, 7.0)),
                      .slope = static_cast<float>(config.Number("swiglu_alpha", 1e-3, 1e3, 1.702))};
  if (!config.ok()) return;
  spec.experts.router_bias = spec.experts.biases = true;
  for (LayerSpec& layer : spec.layers) layer.has_experts = true;
  spec.attn_scale = UsualAttentionScale(spec);
  spec.attn_sinks = true;
  SetKvGroups(windows, spec);
  TensorNames& names = spec.names = LlamaTensorNames();
  names.sinks = "model.layers.{}.self_attn.sinks";
  names.router = "model.layers.{}.mlp.router";
  names.stacked_gate_up = "model.layers.{}.mlp.experts.gate_up_proj";
  names.stacked_down = "model.layers.{}.mlp.experts.down_proj";
}

}  // namespace stagecoach::arch
