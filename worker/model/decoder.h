// The decoder layers: one implementation for all ModelSpecs.
#pragma once

#include <span>

#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "worker/model/weights.h"

namespace stagecoach::worker {

// Scratch memory of one layer, shared by all layers. T is max_batched_tokens; the other sizes are
// defined in weights.h.
struct LayerScratch {
  kernels::Act normed;  // [T, H]; also a block's output before its post norm, and [T, q_rank]
  kernels::Act qkv;     // [T, HeadShape::qkv_width]
  kernels::Act attn;    // [T, HeadShape::out_width], or [T, RecurrentShape::values_width]
  // I: ModelSpec::mlp_width(); if that is 0, the next two are null.
  kernels::Act mlp;         // [T, 2 I] if gated, else [T, I]
  kernels::Act activation;  // [T, I]; the same as mlp if not gated
  // The following are null without experts.
  float* router_logits;   // [T, n_experts]
  int32_t* experts;       // [T, n_used]
  float* expert_weights;  // [T, n_used]
  void* expert_scratch;   // Ops::ExpertScratchBytes
  // Null unless ExpertSpec::beside_mlp.
  float* dense_out;   // [T, H]
  float* expert_out;  // [T, H]
  // Null without latent attention.
  kernels::Act head_rows;  // [T, N query_dim]: queries; then [T, N value_dim]: values
  float* q_latents;        // [T, LatentSpec::q_rank]; null if that is 0
  float* latents;          // [T, latent_dim]
  // Null without recurrent layers and output gates.
  float* projected;  // [T, RecurrentShape::projected_width] or [T, (2 N + 2 K) D]
  float* mixed;      // [T, RecurrentShape::n_channels], or the gates: [T, N D]
};

struct LayerInputs {
  const LayerWeights& weights;
  const LayerSpec& layer;
  const kernels::RopeTable* rope;  // null: learned positions
  kernels::KvLayer kv;             // of a layer that is not recurrent
  // A recurrent layer has these: see RecurrenceArgs.
  float* states;
  std::span<const kernels::StateSave> saves;
  // The layer's numbers in LayerInputsSpec, or null. The next row begins `stride` further on.
  const float* row_inputs = nullptr;
  int64_t row_inputs_stride = 0;
};

// Computes hidden += attention(norm(hidden)), then hidden += mlp(norm(hidden)), or one of them if
// the layer has one part. NormPlacement may
// place the norms elsewhere. With LayerInputsSpec, adds a third part; a layer scale comes last.
// hidden: [T, H] float32.
void RunLayer(const ModelSpec& spec, const LayerInputs& inputs, const kernels::StepInputs& step,
              const LayerScratch& scratch, float* hidden, kernels::Ops* ops);

// The two halves of RunLayer. AppendKeys ends when the keys and values of all rows are in the KV
// cache and their queries are in scratch.qkv. FinishLayer does the rest for the rows of its own
// `step`; their queries must be in scratch.qkv.
void AppendKeys(const ModelSpec& spec, const LayerInputs& inputs, const kernels::StepInputs& step,
                const LayerScratch& scratch, float* hidden, kernels::Ops* ops);
void FinishLayer(const ModelSpec& spec, const LayerInputs& inputs, const kernels::StepInputs& step,
                 const LayerScratch& scratch, float* hidden, kernels::Ops* ops);

}  // namespace stagecoach::worker
