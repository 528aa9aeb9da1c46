// The decoder layers: one implementation for every ModelSpec.
#pragma once

#include <span>

#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "worker/model/weights.h"

namespace stagecoach::worker {

// Scratch of one layer, shared by all; T rows of max_batched_tokens. Widths as in weights.h.
struct LayerScratch {
  kernels::Act normed;      // [T, H]; also a block's output before its post norm
  kernels::Act qkv;         // [T, (N + 2 K) D]
  kernels::Act attn;        // [T, N D]
  kernels::Act mlp;         // [T, 2 I] gated, [T, I] else; null without dense layers, as the next
  kernels::Act activation;  // [T, I]; mlp itself when not gated
  // Null without experts.
  float* router_logits;   // [T, n_experts]
  int32_t* experts;       // [T, n_used]
  float* expert_weights;  // [T, n_used]
  void* expert_scratch;   // Ops::ExpertScratchBytes
};

struct LayerInputs {
  const LayerWeights& weights;
  const LayerSpec& layer;
  const kernels::RopeTable* rope;  // null: learned positions
  kernels::KvLayer kv;
};

// hidden += attention(norm(hidden)); hidden += mlp(norm(hidden)), or with the norms where
// NormPlacement says. hidden: [T, H] float32.
void RunLayer(const ModelSpec& spec, const LayerInputs& inputs, const kernels::StepInputs& step,
              const LayerScratch& scratch, float* hidden, kernels::Ops* ops);

// The two halves of it: until the keys and values of all rows are in the cache and their queries in
// scratch.qkv; and from there on, of the rows that `step` has then, whose queries scratch.qkv
// holds.
void AppendKeys(const ModelSpec& spec, const LayerInputs& inputs, const kernels::StepInputs& step,
                const LayerScratch& scratch, float* hidden, kernels::Ops* ops);
void FinishLayer(const ModelSpec& spec, const LayerInputs& inputs, const kernels::StepInputs& step,
                 const LayerScratch& scratch, float* hidden, kernels::Ops* ops);

}  // namespace stagecoach::worker
