// Memory that a stage's steps need besides weights and KV cache. StageModel allocates these sizes.
// Planning tools use them for devices that are not present.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

// Inputs that depend on the device.
struct ScratchDevice {
  DType act_dtype = DType::kF32;  // Ops::ActivationDType
  bool runs_ahead = false;
  size_t attention_bytes = 0;  // Ops::AttentionScratchBytes of StepLimitsOf
  size_t expert_bytes = 0;     // Ops::ExpertScratchBytes of ExpertShapeOf
};

// In bytes; 0: the stage has no such buffer. T: max_batched_tokens, S: max_sequences, R:
// max_logit_rows, H: hidden_size, P: embed_size, V: vocab_size.
struct ScratchSizes {
  size_t hidden = 0;      // [T, ModelSpec::passed_width] float32
  size_t passed = 0;      // [T, ModelSpec::passed_width]: several stages, hidden_dtype not float32
  size_t normed = 0;      // [T, H], or [T, LatentSpec::q_rank] if that is more
  size_t inner = 0;       // qkv and attn; later the activation
  size_t attn_start = 0;  // offset of attn in inner
  size_t mlp = 0;         // also attention's scratch, earlier in the layer
  size_t router_logits = 0, experts = 0, expert_weights = 0;  // [T, n_experts], [T, n_used]
  size_t expert_scratch = 0;
  size_t dense_out = 0, expert_out = 0;              // [T, H] float32: with ExpertSpec::beside_mlp
  size_t head_rows = 0, q_latents = 0, latents = 0;  // with latent attention: see LayerScratch
  // With recurrent layers or output gates, float32: see LayerScratch. projected: also the first
  // stage's projection of embeddings to inputs of layers.
  size_t projected = 0, mixed = 0;
  size_t embedded = 0;  // [T, P]: if the embedding is projected
  // Last stage only.
  size_t last_row_ids = 0;     // [S] int32
  size_t last_qkv = 0;         // [S, qkv]
  size_t last_hidden = 0;      // [S, ModelSpec::passed_width] float32
  size_t logit_rows = 0;       // [R] int32
  size_t logit_hidden = 0;     // [R, H] float32
  size_t logit_normed = 0;     // [R, H]; 0 with pooling, like the next two
  size_t logit_projected = 0;  // [R, P]
  size_t logits = 0;           // [R, V] float32
  size_t ropes = 0;            // tables of all ModelSpec::ropes
  int32_t max_logit_rows = 0;  // R; 0 unless last stage

  // Sum of all buffers. StepInputs::n_bytes is extra.
  uint64_t total() const;
};

ScratchSizes SizeScratch(const StageModelOptions& options, const ModelSpec& spec,
                         const ScratchDevice& device);

kernels::StepLimits StepLimitsOf(const StageModelOptions& options, const ModelSpec& spec);
// For a model with experts.
kernels::ExpertShape ExpertShapeOf(const StageModelOptions& options, const ModelSpec& spec);

}  // namespace stagecoach::worker
