// Arguments of the operations of recurrent layers and of gates, as op_args.h has those of others.
//
// T: rows (tokens) of the step. S: sequences of the step.
#pragma once

#include <cstdint>
#include <span>

#include "common/model/recurrent_spec.h"
#include "kernels/op_args.h"
#include "kernels/step_inputs.h"

namespace stagecoach::kernels {

// A recurrent layer between its two projections. For each row: q, k and v pass through the
// convolution and SiLU. With state M, dt = softplus(a + dt_bias) and decay = exp(-exp(a_log) * dt),
// each value head of a delta net scales q and k to length 1, q also by 1 / sqrt(key_dim), and with
// beta = sigmoid(b) computes
//   M = decay * M;  M += k (beta * (v - k M));  o = q M
// and out = o / rms(o) * norm * silu(z). A value head of a state-space layer computes
//   M = decay * M;  M += k (dt * v);  o = q M + skip * v
// and with y = o * silu(z), out = y / rms(y) * norm, where rms is over all value heads of a key
// head. Rows of a sequence follow one another, so neither chunks nor neighbours change a bit.
struct RecurrenceArgs {
  RecurrentShape shape;
  float* projected;                  // [T, projected_width]; the operation may overwrite b and a
  const float* conv;                 // [n_channels, conv_width], the oldest position first
  const float* conv_bias = nullptr;  // [n_channels] or null
  const float* a_log;                // [n_value_heads]
  const float* dt_bias;              // [n_value_heads]
  const float* skip = nullptr;       // [n_value_heads] in a state-space layer
  const float* norm;                 // [norm_width]
  float norm_eps;
  const StepInputs* step;
  // [n_states, state_elements], by slot. Nothing else writes them between BuildStep and this, but
  // CopyStates. The device chooses the order of a matrix's elements. A
  // sequence whose first row is at position 0 begins with zeros. The operation leaves the state
  // after the sequence's last row.
  float* states;
  std::span<const StateSave> saves;  // StepBatch::state_saves of the step
  float* mixed;                      // [T, n_channels]: scratch
  Act out;                           // [T, values_width]
};

// Distributes the rows of a projection [q and gate of each head, k, v] to where attention and
// SigmoidGate expect them.
struct SplitGateArgs {
  const float* projected;  // [T, (2 * n_heads + 2 * n_kv_heads) * head_dim]
  Act qkv;                 // [T, (n_heads + 2 * n_kv_heads) * head_dim]
  float* gate;             // [T, n_heads * head_dim]
  int32_t n_tokens;
  int32_t n_heads, n_kv_heads, head_dim;
};

// x *= sigmoid(gate)
struct SigmoidGateArgs {
  Act x;              // [T, width]
  const float* gate;  // [T, gate_width]
  int32_t n_rows;
  int32_t width;
  int32_t gate_width;  // width, or 1: one gate per row
  // If set, row t has one gate: number chosen[t] of its gate_width.
  const int32_t* chosen = nullptr;  // [T] or null

  bool is_by_row() const { return chosen != nullptr || gate_width == 1; }
};

// Copies whole states, in the order of `copies`.
struct CopyStatesArgs {
  float* states;       // [n_states, n_elements]
  int64_t n_elements;  // of one state
  std::span<const StateCopy> copies;
};

}  // namespace stagecoach::kernels
