// A stage's weights on the device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

// The vectors of a recurrent layer, as RecurrenceArgs has them.
struct RecurrentWeights {
  kernels::Buffer conv, conv_bias, a_log, dt_bias, skip, norm;
};

// W: SharedExpertSpec::intermediate_size.
struct SharedExpertWeights {
  kernels::Matrix row_gate;  // [1, H]
  kernels::Matrix up;        // gated: [2 W, H]: gate, up; else [W, H]
  kernels::Matrix down;      // [H, W]
};

// These weights are for ModelSpec::layer_inputs, whose width is P: see LayerInputsSpec.
struct LayerInputWeights {
  kernels::Matrix gate;       // [P, H]
  kernels::Matrix up;         // [H, P]
  kernels::Buffer post_norm;  // [H]
};

// These weights are for ModelSpec::latent: see LatentSpec. N: heads.
struct LatentWeights {
  kernels::Matrix q_down;           // [q_rank, H]; like q_norm, only with q_rank
  kernels::Buffer q_norm;           // [q_rank]
  kernels::Matrix q;                // [N query_dim, q_rank or H]
  kernels::Matrix kv_down;          // [latent_dim, H]
  kernels::Buffer kv_norm;          // [kv_rank]
  kernels::Matrix keys_transposed;  // [N kv_rank, nope_dim]: K^T of each head
  kernels::Matrix values;           // [N value_dim, kv_rank]: V of each head
};

// H hidden size, P embedding size, X expert's intermediate size, D head size, N query heads, K
// key-value heads, I intermediate size, V vocabulary size. Vectors are float32. Vectors that the
// model does not have are empty.
struct LayerWeights {
  kernels::Buffer attn_norm, attn_norm_bias;  // [H]
  // [(N + 2 K) D, H]: q, k, v; fewer rows, if KvOfRow says so. With output gates
  // [(2 N + 2 K) D, H]: q and gate of each head, k, v. In a recurrent layer
  // [RecurrentShape::projected_width, H].
  kernels::Matrix qkv;
  kernels::Buffer qkv_bias;                 // [(N + 2 K) D]
  kernels::Buffer q_norm, k_norm;           // [D] or, over all heads, [N D] and [K D]
  kernels::Matrix o;                        // [H, N D]; recurrent: [H, values_width]
  kernels::Buffer o_bias;                   // [H]
  kernels::Buffer sinks;                    // [N]
  kernels::Buffer post_attn_norm;           // [H]
  kernels::Buffer mlp_norm, mlp_norm_bias;  // [H]
  kernels::Matrix up;                       // gated: [2 I, H]: gate, up; else [I, H]
  kernels::Buffer up_bias;                  // [2 I] or [I]
  kernels::Matrix down;                     // [H, I]
  kernels::Buffer down_bias;                // [H]
  kernels::Buffer post_mlp_norm;            // [H]
  kernels::Buffer layer_scale;              // [1]
  // Only layers with experts. These have no up and down, unless ExpertSpec::beside_mlp.
  kernels::Matrix router;                            // [n_experts, H]
  std::vector<kernels::Matrix> expert_up;            // by expert: [2 X, H]: gate, up; or [X, H]
  std::vector<kernels::Matrix> expert_down;          // by expert: [H, X]
  kernels::Buffer router_bias, router_correction;    // [n_experts]
  kernels::Buffer expert_up_bias, expert_down_bias;  // [n_experts, 2 X], [n_experts, H]
  kernels::Buffer expert_scales;                     // [n_experts]
  // With ExpertSpec::beside_mlp: [H].
  kernels::Buffer router_norm, expert_norm, post_expert_norm, post_dense_norm;
  SharedExpertWeights shared_expert;  // if the model has one
  RecurrentWeights recurrent;         // only recurrent layers; these have no q_norm and k_norm
  LayerInputWeights inputs;
  LatentWeights latent;  // in place of qkv; then o is [H, N value_dim]
};

struct StageWeights {
  kernels::Matrix embed;       // [V, P]: first stage; also the last stage if tied
  kernels::Matrix positions;   // [max_positions + offset, H]: first stage, learned positions
  kernels::Matrix project_in;  // [H, P]: first stage, if P differs from H
  // First stage, with ModelSpec::layer_inputs: see LayerInputsSpec.
  kernels::Matrix input_embed, input_project;
  kernels::Buffer input_norm;
  std::vector<LayerWeights> layers;
  kernels::Buffer final_norm, final_norm_bias;  // [H]: last stage
  kernels::Matrix project_out;                  // [P, H]: last stage, if P differs from H
  kernels::Matrix lm_head;                      // [V, P]: last stage, untied
  uint64_t n_bytes = 0;
  std::map<std::string, uint64_t> bytes_by_encoding;  // together n_bytes

  const kernels::Matrix& output_matrix() const { return lm_head.rows > 0 ? lm_head : embed; }
};

// Checks all tensors against `spec`, then allocates and reads.
absl::StatusOr<std::unique_ptr<StageWeights>> LoadWeights(const StageModelOptions& options,
                                                          const ModelSpec& spec, kernels::Ops* ops,
                                                          const LoadProgressFn& progress);

}  // namespace stagecoach::worker
