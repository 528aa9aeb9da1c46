// Qwen3-Next and Qwen3.5: three recurrent layers (gated delta nets) are followed by one of full
// attention, whose output has a gate. Rotation covers a quarter of each head, and norms are
// zero-centred. MLPs are dense, or experts beside a shared one.
#include <fmt/format.h>

#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {
namespace {

constexpr int32_t kMaxConvWidth = 64;

void ReadRecurrent(ConfigReader& config, ModelSpec& spec) {
  RecurrentShape& shape = spec.recurrent.emplace().shape;
  shape.n_key_heads = config.Int("linear_num_key_heads", 1, kMaxHeads, 16);
  shape.n_value_heads = config.Int("linear_num_value_heads", 1, kMaxHeads, 32);
  shape.key_dim = config.Int("linear_key_head_dim", 1, kMaxHeadDim, 128);
  shape.value_dim = config.Int("linear_value_head_dim", 1, kMaxHeadDim, 128);
  shape.conv_width = config.Int("linear_conv_kernel_dim", 2, kMaxConvWidth, 4);
  if (config.ok() && shape.n_value_heads % shape.n_key_heads != 0) {
    config.Problem("linear_num_value_heads",
                   fmt::format("{} is not a multiple of linear_num_key_heads, which is {}",
                               shape.n_value_heads, shape.n_key_heads));
  }
}

// Marks the recurrent layers; all others have full attention.
void ReadLayerTypes(ConfigReader& config, ModelSpec& spec) {
  const std::vector<bool> are_linear =
      ReadLayerKinds(config, "layer_types", spec.n_layers(), "full_attention", "linear_attention");
  const int32_t interval = config.Int("full_attention_interval", 1, kMaxLayers, 4);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool by_interval = (static_cast<int32_t>(i) + 1) % interval != 0;
    spec.layers[i].is_recurrent = are_linear.empty() ? by_interval : are_linear[i];
  }
}

void ReadCommon(ConfigReader& config, const SizeDefaults& defaults, ModelSpec& spec) {
  ReadSizes(config, defaults, spec);
  spec.norm = NormKind::kRmsPlusOne;
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  spec.qkv_bias = spec.o_bias = config.Bool("attention_bias", false);
  spec.qk_norm = spec.attn_gate = true;
  spec.ropes = {ReadRope(config, 10000.0, spec, /*partial_rotary_factor=*/0.25)};
  ReadRecurrent(config, spec);
  ReadLayerTypes(config, spec);
  if (!config.ok()) return;
  spec.attn_scale = UsualAttentionScale(spec);
  spec.kv_groups = {KvGroupSpec{}};
  TensorNames& names = spec.names = LlamaTensorNames();
  names.q_norm = "model.layers.{}.self_attn.q_norm";
  names.k_norm = "model.layers.{}.self_attn.k_norm";
  RecurrentSpec& recurrent = *spec.recurrent;
  recurrent.conv = "model.layers.{}.linear_attn.conv1d";
  recurrent.a_log = "model.layers.{}.linear_attn.A_log";
  recurrent.dt_bias = "model.layers.{}.linear_attn.dt_bias";
  recurrent.norm = "model.layers.{}.linear_attn.norm";
  recurrent.out = "model.layers.{}.linear_attn.out_proj";
}

void ReadSparse(ConfigReader& config, const ExpertSpec& defaults, ModelSpec& spec) {
  ReadExperts(config, "num_experts", defaults,
              config.Int("moe_intermediate_size", 1, kMaxWidth, 512), spec);
  SharedExpertSpec& shared = spec.shared_expert;
  shared.intermediate_size = config.Int("shared_expert_intermediate_size", 1, kMaxWidth, 512);
  ReadQwenSparseLayers(config, spec);
  if (!config.ok()) return;
  TensorNames& names = spec.names;
  SetExpertNames(names);
  MayFuseExperts(names);
  shared.row_gate = "model.layers.{}.mlp.shared_expert_gate";
  shared.gate = "model.layers.{}.mlp.shared_expert.gate_proj";
  shared.up = "model.layers.{}.mlp.shared_expert.up_proj";
  shared.down = "model.layers.{}.mlp.shared_expert.down_proj";
}

void SetQwen35Names(ModelSpec& spec) {
  if (!spec.recurrent) return;
  spec.recurrent->qkv = "model.layers.{}.linear_attn.in_proj_qkv";
  spec.recurrent->z = "model.layers.{}.linear_attn.in_proj_z";
  spec.recurrent->b = "model.layers.{}.linear_attn.in_proj_b";
  spec.recurrent->a = "model.layers.{}.linear_attn.in_proj_a";
}

using ReadText = void (*)(ConfigReader& config, ModelSpec& spec);

// Checkpoints with a vision tower keep the text model's keys in the section text_config.
void ReadMultimodal(ConfigReader& config, ReadText read, ModelSpec& spec) {
  std::optional<ConfigReader> text = TextPart(config, spec);
  if (!text) return;
  read(*text, spec);
  // transformers reads this key outside of the section first.
  if (config.Has("tie_word_embeddings")) {
    spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  }
}

}  // namespace

void ReadQwen3Next(ConfigReader& config, ModelSpec& spec) {
  ReadCommon(config, {.n_kv_heads = 2, .head_dim = 256, .max_positions = 32768}, spec);
  if (!config.ok()) return;
  spec.recurrent->shape.by_key_head = true;
  spec.recurrent->qkvz = "model.layers.{}.linear_attn.in_proj_qkvz";
  spec.recurrent->ba = "model.layers.{}.linear_attn.in_proj_ba";
  ReadSparse(
      config,
      {.n_experts = 512, .n_used = 10, .weights_over_used = config.Bool("norm_topk_prob", true)},
      spec);
}

void ReadQwen35(ConfigReader& config, ModelSpec& spec) {
  ReadCommon(config, {.n_kv_heads = 4, .head_dim = 256, .max_positions = 32768}, spec);
  SetQwen35Names(spec);
}

void ReadQwen35Moe(ConfigReader& config, ModelSpec& spec) {
  // It has no layers with a dense MLP, and need not say their size.
  ReadCommon(config,
             {.n_kv_heads = 2, .head_dim = 256, .intermediate_size = 512, .max_positions = 32768},
             spec);
  SetQwen35Names(spec);
  if (!config.ok()) return;
  ReadSparse(config, {.n_experts = 256, .n_used = 8, .weights_over_used = true}, spec);
}

void ReadQwen35Multimodal(ConfigReader& config, ModelSpec& spec) {
  ReadMultimodal(config, &ReadQwen35, spec);
}

void ReadQwen35MoeMultimodal(ConfigReader& config, ModelSpec& spec) {
  ReadMultimodal(config, &ReadQwen35Moe, spec);
}

}  // namespace stagecoach::arch
