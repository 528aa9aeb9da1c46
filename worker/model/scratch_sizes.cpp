#include "worker/model/scratch_sizes.h"

#include <algorithm>

#include "common/config/load_config.h"
#include "worker/model/passed_rows.h"
#include "worker/model/rope_table.h"

namespace stagecoach::worker {
namespace {

// Limits the memory for logits of one call: 64 MiB is 64 rows of a vocabulary of 262,144. A device
// that runs ahead would have to wait between two calls, so it may use 1 GiB (1,024 rows).
constexpr int64_t kMaxLogitBytes = int64_t{64} << 20;
constexpr int64_t kMaxLogitBytesAhead = int64_t{1} << 30;

int32_t MaxLogitRows(const StageModelOptions& options, const ModelSpec& spec, bool runs_ahead) {
  // All rows of a step that FinalHidden may be asked for.
  if (spec.pooling) {
    return spec.pooling->mean ? options.config.max_batched_tokens()
                              : options.config.max_sequences();
  }
  const int64_t row_bytes = int64_t{spec.vocab_size} * static_cast<int64_t>(sizeof(float));
  const int64_t most_bytes = runs_ahead ? kMaxLogitBytesAhead : kMaxLogitBytes;
  const int32_t most_rows =
      options.max_logit_rows > 0 ? options.max_logit_rows : options.config.max_sequences();
  return static_cast<int32_t>(std::clamp<int64_t>(most_bytes / row_bytes, 1, most_rows));
}

size_t Bytes(int64_t rows, int64_t width, size_t element_bytes) {
  return static_cast<size_t>(rows * width) * element_bytes;
}

}  // namespace

uint64_t ScratchSizes::total() const {
  return hidden + passed + normed + inner + mlp + router_logits + experts + expert_weights +
         expert_scratch + dense_out + expert_out + head_rows + q_latents + latents + projected +
         mixed + embedded + last_row_ids + last_qkv + last_hidden + logit_rows + logit_hidden +
         logit_normed + logit_projected + logits + ropes;
}

ScratchSizes SizeScratch(const StageModelOptions& options, const ModelSpec& spec,
                         const ScratchDevice& device) {
  const size_t act_bytes = DTypeBytes(device.act_dtype);
  const int64_t tokens = options.config.max_batched_tokens(),
                slots = options.config.max_sequences();
  int64_t heads_width = 0, qkv_width = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (!layer.has_attention()) continue;
    const HeadShape heads = spec.heads(layer);
    heads_width = std::max(heads_width, int64_t{heads.out_width()});
    qkv_width = std::max(qkv_width, int64_t{heads.qkv_width()});
  }
  const auto of_recurrent = [&](int32_t (RecurrentShape::*width)() const) {
    return spec.recurrent ? int64_t{(spec.recurrent->shape.*width)()} : 0;
  };
  const int64_t attn_width = std::max(heads_width, of_recurrent(&RecurrentShape::values_width));
  const bool is_projected = spec.embed_size != spec.hidden_size;
  // At the end of a layer, its inputs take the MLP's place.
  const int64_t mlp_width = std::max(int64_t{spec.mlp_width()} * (spec.gated_mlp ? 2 : 1),
                                     int64_t{spec.layer_inputs.width});

  ScratchSizes sizes;
  sizes.hidden = Bytes(tokens, spec.passed_width(), sizeof(float));
  if (HiddenDTypeOf(options.config) != DType::kF32 && !(options.is_first && options.is_last)) {
    sizes.passed = PassedBytes(spec, options.config, static_cast<size_t>(tokens));
  }
  const int32_t q_rank = spec.latent ? spec.latent->q_rank : 0;
  sizes.normed = Bytes(tokens, std::max(spec.hidden_size, q_rank), act_bytes);
  // The activation may overwrite qkv and attn, because attention is over when it is written.
  const int64_t activation_width = spec.gated_mlp ? spec.mlp_width() : 0;
  const int64_t qkv_elements = (tokens * qkv_width + 63) / 64 * 64;
  sizes.attn_start = Bytes(1, qkv_elements, act_bytes);
  sizes.inner =
      Bytes(1, std::max(qkv_elements + tokens * attn_width, tokens * activation_width), act_bytes);
  // Attention's scratch shares the memory of mlp, because a layer runs attention before the MLP.
  sizes.mlp = std::max(Bytes(tokens, mlp_width, act_bytes),
                       (device.attention_bytes + act_bytes - 1) / act_bytes * act_bytes);
  if (spec.experts.n_experts > 0) {
    sizes.router_logits = Bytes(tokens, spec.experts.n_experts, sizeof(float));
    sizes.experts = Bytes(tokens, spec.experts.n_used, sizeof(int32_t));
    sizes.expert_weights = Bytes(tokens, spec.experts.n_used, sizeof(float));
    sizes.expert_scratch = device.expert_bytes;
    const size_t out = Bytes(tokens, spec.hidden_size, sizeof(float));
    if (spec.experts.beside_mlp) sizes.dense_out = sizes.expert_out = out;
  }
  if (const auto& latent = spec.latent) {
    const int64_t of_head = std::max(latent->query_dim(), latent->value_dim);
    sizes.head_rows = Bytes(tokens, spec.n_heads * of_head, act_bytes);
    sizes.q_latents = Bytes(tokens, q_rank, sizeof(float));
    sizes.latents = Bytes(tokens, latent->latent_dim(), sizeof(float));
  }
  const int64_t gated_width = spec.attn_gate ? heads_width + qkv_width : 0;
  const int64_t gate_width = spec.attn_gate ? heads_width : 0;
  const int64_t inputs_width =
      options.is_first ? int64_t{spec.n_layers()} * spec.layer_inputs.width : 0;
  sizes.projected = Bytes(
      tokens, std::max({gated_width, of_recurrent(&RecurrentShape::projected_width), inputs_width}),
      sizeof(float));
  sizes.mixed =
      Bytes(tokens, std::max(gate_width, of_recurrent(&RecurrentShape::n_channels)), sizeof(float));
  if (options.is_first && is_projected) sizes.embedded = Bytes(tokens, spec.embed_size, act_bytes);
  if (options.is_last) {
    sizes.last_row_ids = Bytes(slots, 1, sizeof(int32_t));
    sizes.last_qkv = Bytes(slots, qkv_width, act_bytes);
    sizes.last_hidden = Bytes(slots, spec.passed_width(), sizeof(float));
    sizes.max_logit_rows = MaxLogitRows(options, spec, device.runs_ahead);
    const int64_t rows = sizes.max_logit_rows;
    sizes.logit_rows = Bytes(rows, 1, sizeof(int32_t));
    sizes.logit_hidden = Bytes(rows, spec.hidden_size, sizeof(float));
    if (!spec.pooling) {
      sizes.logit_normed = Bytes(rows, spec.hidden_size, act_bytes);
      if (is_projected) sizes.logit_projected = Bytes(rows, spec.embed_size, act_bytes);
      sizes.logits = Bytes(rows, spec.vocab_size, sizeof(float));
    }
  }
  for (const RopeSpec& rope : spec.ropes) {
    sizes.ropes += 2 * Bytes(options.config.max_model_len(), RotaryDim(rope, spec.head_dim) / 2,
                             sizeof(float));
  }
  return sizes;
}

kernels::StepLimits StepLimitsOf(const StageModelOptions& options, const ModelSpec& spec) {
  kernels::StepLimits limits{
      .max_tokens = options.config.max_batched_tokens(),
      .max_slots = options.config.max_sequences(),
      .max_blocks =
          (options.config.max_model_len() + kernels::kBlockTokens - 1) / kernels::kBlockTokens,
      .n_heads = spec.n_heads,
      .n_kv_heads = spec.n_kv_heads,
      .head_dim = spec.head_dim,
      .act_dtype = DTypeOf(options.config).value_or(spec.stored_dtype),
      .kv_dtype = KvDTypeOf(options.config, spec.stored_dtype),
      .has_softcap = spec.attn_softcap > 0,
      .has_states = spec.recurrent.has_value()};
  for (const KvGroupSpec& group : spec.kv_groups) {
    limits.groups.push_back({.window = group.window,
                             .n_kv_heads = group.n_kv_heads,
                             .head_dim = group.head_dim,
                             .latent_rank = spec.latent ? spec.latent->kv_rank : 0});
  }
  return limits;
}

kernels::ExpertShape ExpertShapeOf(const StageModelOptions& options, const ModelSpec& spec) {
  return {.max_tokens = options.config.max_batched_tokens(),
          .n_experts = spec.experts.n_experts,
          .n_used = spec.experts.n_used,
          .hidden = spec.hidden_size,
          .width = spec.experts.intermediate_size};
}

}  // namespace stagecoach::worker
