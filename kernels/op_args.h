// What the operations of ops.h read and write, with shapes and dtypes. Apart from it so that
// kernels need nothing but this.
//
// T: rows (tokens) of the step. R: rows to take logits of. S: sequences of the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/dtype.h"
#include "common/gguf/gguf_types.h"
#include "common/kv_block.h"
#include "common/model/layer_kinds.h"
#include "kernels/step_inputs.h"

namespace stagecoach::kernels {

inline constexpr int32_t kBlockTokens = kKvBlockTokens;

// Device memory, zeroed, aligned to 64 bytes or more; freed with its last owner.
struct Buffer {
  std::shared_ptr<void> data;
  size_t bytes = 0;
  template <typename T>
  T* As() const {
    return static_cast<T*>(data.get());
  }
};

// Rows of a matrix that are stored alike.
struct MatrixPart {
  int32_t rows;
  gguf::TensorType encoding;
};

// A weight matrix [rows, cols] (rows: outputs, cols: inputs) in the device's own layout.
// Made by Ops::NewMatrix and filled by Ops::PackRows or PackStored; opaque elsewhere.
struct Matrix {
  Buffer buffer;
  DType dtype = DType::kF32;  // of a matrix without parts
  int32_t rows = 0;
  int32_t cols = 0;
  std::vector<MatrixPart> parts = {};  // kept as stored, one below the other; empty: of dtype
};

// A part's rows are a multiple of these, but for the last part's.
inline constexpr int32_t kPartRows = 16;

// Activations: float32, or on devices that compute in the weights' 16-bit type (see
// Ops::ActivationDType) that type. A plain float* is float32.
struct ConstAct {
  const void* data = nullptr;
  DType dtype = DType::kF32;

  constexpr ConstAct() = default;
  constexpr ConstAct(const float* values) : data(values) {}
  constexpr ConstAct(const void* values, DType type) : data(values), dtype(type) {}
  // REQUIRES: dtype is kF32.
  const float* f32() const {
    SC_CHECK(dtype == DType::kF32);
    return static_cast<const float*>(data);
  }
};

struct Act {
  void* data = nullptr;
  DType dtype = DType::kF32;

  constexpr Act() = default;
  constexpr Act(float* values) : data(values) {}
  constexpr Act(void* values, DType type) : data(values), dtype(type) {}
  constexpr operator ConstAct() const { return {data, dtype}; }
  // REQUIRES: dtype is kF32.
  float* f32() const {
    SC_CHECK(dtype == DType::kF32);
    return static_cast<float*>(data);
  }
};

struct EmbedArgs {
  const int32_t* ids;   // [T]; with table only
  const Matrix* table;  // [vocab, hidden], or null: the position rows alone
  float scale;
  const int32_t* positions;      // [T]; with position_table only
  const Matrix* position_table;  // [max_positions + offset, hidden], or null
  int32_t position_offset;
  Act out;  // [T, hidden]
  int32_t n_tokens;
};

struct GemmArgs {
  ConstAct x;         // [T, w.cols]
  const Matrix* w;    // [w.rows, w.cols]
  const float* bias;  // [w.rows] or null
  Act y;              // [T, w.rows] = x w^T + bias
  int32_t n_rows;     // T
  bool add_to_y;      // y += instead (the residual)
};

struct NormArgs {
  ConstAct x;           // [T, width]
  const float* weight;  // [width]
  const float* bias;    // [width] or null (kLayerNorm only)
  Act out;              // [T, width]; may be x
  int32_t n_rows;
  int32_t width;
  NormKind kind;
  float eps;
  bool add_to_out;  // out += norm(x) (the residual after Gemma's post norms)
};

// cos and sin of every position and frequency, made once: [max_positions, rotary_dim / 2] each.
struct RopeTable {
  const float* cos;
  const float* sin;
  int32_t rotary_dim;  // the head's first so many values are rotated; even, at most head_dim
};

// Paged KV cache of one layer: [n_blocks, n_kv_heads, kBlockTokens, head_dim] each, of
// Ops::AllocateKv. Within a block the order of its elements is the device's own, and may be another
// in each block: only operations read and write it.
struct KvLayer {
  void* k;
  void* v;
  DType dtype;
};

// Optional per-head norm of q and k, rotation in halves (the "rotate_half" pairing of i and i +
// rotary_dim / 2), then k and v rows go into the cache.
struct RopeAppendArgs {
  Act qkv;  // [T, (n_heads + 2 * n_kv_heads) * head_dim]: q, k, v; q is rewritten in
            // place, and k may be
  const int32_t* positions;  // [T]
  const int32_t* kv_slots;   // [T]: block * kBlockTokens + offset in this layer's KV group
  const RopeTable* rope;     // null: no rotation
  const float* q_norm;       // [head_dim] or null
  const float* k_norm;       // [head_dim] or null
  NormKind norm_kind;
  float norm_eps;
  KvLayer kv;
  int32_t n_tokens;
  int32_t n_heads, n_kv_heads, head_dim;  // head_dim is even, and at most 512
};

// Causal attention over the paged cache, which already holds this step's k and v.
struct AttentionArgs {
  ConstAct qkv;  // [T, (n_heads + 2 * n_kv_heads) * head_dim]; only q is read
  KvLayer kv;
  const StepInputs* step;
  int32_t group;  // KV group of the layer: whose block tables
  Act out;        // [T, n_heads * head_dim]
  int32_t n_heads, n_kv_heads, head_dim;
  float scale;
  float softcap;   // 0: off
  int32_t window;  // 0: full
};

struct ActivationArgs {
  ConstAct x;  // gated: [T, 2 * width] (gate, up); else [T, width]
  Act out;     // [T, width]; may be x when not gated
  int32_t n_rows;
  int32_t width;
  Activation kind;
  bool gated;
};

// Mixture of experts: which of them each row goes to. The n_used largest logits, the largest first,
// the lowest expert first among equals; NaN counts as -inf.
struct RouteArgs {
  const float* logits;  // [T, n_experts]
  int32_t* experts;     // [T, n_used]
  float* weights;       // [T, n_used]: softmax over all experts, or over those used
  int32_t n_tokens;
  int32_t n_experts, n_used;
  bool over_used;  // the weights of a row sum to 1
};

// out[t] += sum over the row's experts, in their order by number, of
// weight * down(act(gate(x[t])) * up(x[t])). Rows are grouped by expert, so that a step reads an
// expert's weights once for hundreds of its rows, and those of unused ones not at all.
struct ExpertMlpArgs {
  ConstAct x;                    // [T, hidden]
  const int32_t* experts;        // [T, n_used], all different in a row
  const float* weights;          // [T, n_used]
  std::span<const Matrix> up;    // n_experts of [2 * width, hidden]: gate, up
  std::span<const Matrix> down;  // n_experts of [hidden, width]
  float* out;                    // [T, hidden]; not x
  void* scratch;                 // Ops::ExpertScratchBytes, of device memory
  int32_t n_tokens;
  int32_t n_used;
  Activation kind;
};

// The sizes that decide how much scratch ExpertMlp takes.
struct ExpertShape {
  int32_t max_tokens;
  int32_t n_experts, n_used;
  int32_t hidden, width;
};

struct GatherRowsArgs {
  ConstAct x;           // [T, width]; float32, or of out's type
  const int32_t* rows;  // [R]; null: the first R
  Act out;              // [R, width]
  int32_t n_rows;       // R
  int32_t width;
};

}  // namespace stagecoach::kernels
