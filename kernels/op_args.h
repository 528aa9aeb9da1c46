// Arguments of the operations in ops.h, with shapes and dtypes. They have their own header so that
// kernels do not depend on the Ops interface.
//
// T: rows (tokens) of the step. R: rows that need logits. S: sequences of the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/dtype.h"
#include "common/encoding/encoding.h"
#include "common/key_window.h"
#include "common/kv_block.h"
#include "common/kv_fp8.h"
#include "common/model/latent_spec.h"
#include "common/model/layer_kinds.h"
#include "kernels/step_inputs.h"

namespace stagecoach::kernels {

inline constexpr int32_t kBlockTokens = kKvBlockTokens;

// Memory that a device allocated, aligned to at least 64 bytes and freed with its last owner.
// Ops::Allocate zeroes it; matrices and pinned host memory may start with undefined contents.
struct Buffer {
  std::shared_ptr<void> data;
  size_t bytes = 0;
  template <typename T>
  T* As() const {
    return static_cast<T*>(data.get());
  }
};

// Consecutive rows of a matrix that share one encoding.
struct MatrixPart {
  int32_t rows;
  Encoding encoding;
  bool is_expert = false;  // of a matrix in ExpertMlpArgs, whose layout may differ
};

// A weight matrix [rows, cols] (rows: outputs, cols: inputs) in the device's own layout.
// Made by Ops::NewMatrix and filled by Ops::PackRows or PackStored; opaque elsewhere.
struct Matrix {
  Buffer buffer;
  DType dtype = DType::kF32;  // element type of a matrix without parts
  int32_t rows = 0;
  int32_t cols = 0;
  std::vector<MatrixPart> parts = {};  // in row order, kept as stored; empty: all rows have `dtype`
};

// Every part but the last has a multiple of this many rows.
inline constexpr int32_t kPartRows = 16;

// Activations: float32, or the weights' 16-bit type on devices that compute in it (see
// Ops::ActivationDType). A plain float* converts to float32 activations.
struct ConstAct {
  const void* data = nullptr;
  DType dtype = DType::kF32;

  constexpr ConstAct() = default;
  // A plain float* is one. NOLINTNEXTLINE(google-explicit-constructor)
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
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Act(float* values) : data(values) {}
  constexpr Act(void* values, DType type) : data(values), dtype(type) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr operator ConstAct() const { return {data, dtype}; }
  // REQUIRES: dtype is kF32.
  float* f32() const {
    SC_CHECK(dtype == DType::kF32);
    return static_cast<float*>(data);
  }
};

struct EmbedArgs {
  const int32_t* ids;            // [T]; read only if table is set
  const Matrix* table;           // [vocab, hidden], or null: only position rows
  float scale;                   // factor of the token row
  const int32_t* positions;      // [T]; read only if position_table is set
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
  bool add_to_y;      // y += x w^T + bias (the residual)
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

// cos and sin per position and frequency, computed once: [max_positions, rotary_dim / 2] each.
struct RopeTable {
  const float* cos;
  const float* sin;
  int32_t rotary_dim;  // number of leading values per head that are rotated; even, <= head_dim
};

// Paged KV cache of one layer: k and v are [n_blocks, n_kv_heads, kBlockTokens, head_dim] each,
// from Ops::AllocateKv; with kFp8, common/kv_fp8.h says what a head of a block holds. The device
// chooses the order of elements within a block, and the order may differ between blocks. Only
// operations may read or write the contents. Source: W. Kwon et al.,
// "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023.
struct KvLayer {
  void* k;
  void* v;  // null: k holds latents (KvOfRow::kLatents)
  DType dtype;

  int32_t n_vectors() const { return v != nullptr ? 2 : 1; }
};

// Bytes of one KV block of one layer: its keys and its values or, with n_vectors 1, its latents.
constexpr size_t KvBlockBytes(DType dtype, int32_t n_kv_heads, int32_t head_dim,
                              int32_t n_vectors = 2) {
  const auto dim = static_cast<size_t>(head_dim);
  const size_t head_bytes = dtype == DType::kFp8
                                ? KvFp8HeadBytes(dim)
                                : static_cast<size_t>(kBlockTokens) * dim * DTypeBytes(dtype);
  return static_cast<size_t>(n_vectors) * static_cast<size_t>(n_kv_heads) * head_bytes;
}

// A KV block of the cache, and its place in host memory.
struct KvBlockCopy {
  uint32_t block;
  uint32_t place;
};

// Full KV blocks of one layer, and host memory with their contents, in an order that is the same
// for all devices.
struct KvCopyArgs {
  KvLayer kv;
  int32_t n_kv_heads, head_dim;  // head_dim is even
  // Blocks and places are distinct. In host memory, which the caller may reuse on return.
  std::span<const KvBlockCopy> copies;
  // Place i begins at host + i * place_bytes: [n_vectors, n_kv_heads, kBlockTokens, head_dim] in
  // kv.dtype, where n_vectors is kv.n_vectors(): the keys, then the values; or latents. With kFp8,
  // the scales follow the codes of each head, as in the cache. Host memory from Ops::AllocateHost.
  // Both are multiples of 16 bytes, so that other layers' parts of a block may lie between those of
  // this layer.
  void* host;
  size_t place_bytes;
};

// Applies the optional per-head norm to q and k, then rotates both, then scales q, then writes the
// k and v rows into the cache. Source: rotary position embedding (RoFormer, Su et al., 2021) in the
// "rotate_half" form, which pairs value i with value i + rotary_dim / 2.
struct RopeAppendArgs {
  Act qkv;  // [T, (n_heads + 2 * n_kv_heads) * head_dim]: q, k, v; the operation overwrites q in
            // place and may overwrite k and v
  const int32_t* positions;  // [T]
  const int32_t* kv_slots;   // [T]: block * kBlockTokens + offset in this layer's KV group
  const RopeTable* rope;     // null: no rotation
  const float* q_norm;       // [head_dim] or null
  const float* k_norm;       // [head_dim] or null
  NormKind norm_kind;
  float norm_eps;
  KvLayer kv;
  int32_t n_tokens;
  int32_t n_heads, n_kv_heads, head_dim;  // head_dim is even and <= 512
  // The norm is over all heads of q, and over all of k, before the rotation. Then q_norm is
  // [n_heads * head_dim] and k_norm [n_kv_heads * head_dim].
  bool norms_all_heads = false;
  QueryScaling query_scaling = {};  // of q, after the rotation
  bool norms_v = false;  // each head of v has an RMS norm without a weight; norm_kind is kRms
  // Other layouts of qkv's rows. With kNone, nothing is written into the cache.
  KvOfRow kv_of_row = KvOfRow::kKeysAndValues;
};

// One product per head: y[t, h] = w[h] x[t, h]. Heads have n_outputs = w.rows / n_heads outputs
// and w.cols inputs; the first n_outputs numbers of a head of y are written, and the first w.cols
// ones of a head of x are read.
struct HeadGemmArgs {
  ConstAct x;       // [T, n_heads, x_dim]
  const Matrix* w;  // [n_heads * n_outputs, cols], head after head; not quantized
  Act y;            // [T, n_heads, y_dim]
  int32_t n_rows;   // T
  int32_t n_heads;
  int32_t x_dim, y_dim;  // >= w.cols; >= n_outputs, which is a multiple of kLatentMultiple
};

// Completes queries and latents of LatentSpec, and writes the latents into the cache. A latent's
// first kv_rank numbers get an RMS norm, the rest is rotated. Queries are scaled last. D: nope_dim
// + rope_dim. C: kv_rank.
struct LatentAppendArgs {
  float* latents;            // [T, C + rope_dim]; undefined afterwards
  ConstAct q;                // [T, n_heads, D]; only the last rope_dim numbers of a head are read
  Act queries;               // [T, n_heads, C + rope_dim]: those numbers, rotated, go to the end;
                             // the others, which HeadGemm wrote, are only scaled
  const int32_t* positions;  // [T]
  const int32_t* kv_slots;   // [T], as in RopeAppendArgs
  const RopeTable* rope;     // rotary_dim is rope_dim
  bool interleaved;          // as in LatentSpec
  const float* norm;         // [C]
  float norm_eps;
  KvLayer kv;  // one head of C + rope_dim numbers; v is null
  int32_t n_tokens, n_heads;
  int32_t kv_rank, nope_dim, rope_dim;
  QueryScaling query_scaling = {};
};

// Causal attention over the paged cache, which already holds this step's k and v.
struct AttentionArgs {
  ConstAct qkv;  // [T, (n_heads + 2 * n_kv_heads) * head_dim]; only q is read
  KvLayer kv;
  const StepInputs* step;
  int32_t group;  // KV group of the layer: selects the block tables
  Act out;        // [T, n_heads * head_dim]; with latents [T, n_heads * value_dim]
  int32_t n_heads, n_kv_heads, head_dim;
  float scale;    // score = scale * (q . k)
  float softcap;  // score = softcap * tanh(score / softcap); 0: off
  KeyWindow window;
  // A sink is the score of one more key, which has no value and which each row sees.
  const float* sinks = nullptr;                 // [n_heads] or null
  KvOfRow kv_of_row = KvOfRow::kKeysAndValues;  // as in RopeAppendArgs
  // Only with KvOfRow::kLatents: the values are the first value_dim numbers of the keys. It is a
  // multiple of kLatentMultiple, and at most kMaxLatentRank.
  int32_t value_dim = 0;
};

struct ActivationArgs {
  ConstAct x;  // gated: [T, 2 * width] (gate, up); else [T, width]
  Act out;     // [T, width]; may be x when not gated
  int32_t n_rows;
  int32_t width;
  Activation kind;
  bool gated;
  ClampedGlu clamped = {};  // on: in place of `kind`, if gated
  // If not gated: out = act(x) * up. Row t of up begins at up + t * up_stride.
  const float* up = nullptr;
  int64_t up_stride = 0;
};

// Mixture of experts: selects the experts of each row. These are the n_used experts with the
// largest logits, in descending order; the lower expert id comes first on a tie. NaN counts as
// -inf.
struct RouteArgs {
  const float* logits;  // [T, n_experts]
  int32_t* experts;     // [T, n_used]
  float* weights;       // [T, n_used]: softmax over all experts, or over the n_used ones
  int32_t n_tokens;
  int32_t n_experts, n_used;
  bool over_used;  // softmax over the n_used experts: the weights of a row sum to 1
  // In place of the softmax. Then over_used divides a row's weights by their sum, before the
  // factor.
  std::optional<SigmoidRouting> sigmoid = {};
  const float* correction = nullptr;  // [n_experts] or null; only with sigmoid
  // Without sigmoid: each weight is multiplied by its expert's number.
  const float* expert_scales = nullptr;  // [n_experts] or null
  SoftmaxGroups softmax_groups = {};     // without sigmoid
};

// out[t] += the sum of weight * down(act(gate(x[t])) * up(x[t])) over the row's experts, in
// ascending order of expert id. Implementations group rows by expert. A step then reads an expert's
// weights once for hundreds of rows, and does not read the weights of unused experts.
struct ExpertMlpArgs {
  ConstAct x;                    // [T, hidden]
  const int32_t* experts;        // [T, n_used]; distinct within a row
  const float* weights;          // [T, n_used]
  std::span<const Matrix> up;    // n_experts matrices [2 * width, hidden]: gate, up
  std::span<const Matrix> down;  // n_experts matrices [hidden, width]
  float* out;                    // [T, hidden]; must not alias x
  void* scratch;                 // device memory of Ops::ExpertScratchBytes
  int32_t n_tokens;
  int32_t n_used;
  Activation kind;
  ClampedGlu clamped = {};           // as in ActivationArgs
  const float* up_bias = nullptr;    // [n_experts, 2 * width] or null
  const float* down_bias = nullptr;  // [n_experts, hidden] or null
  bool clears_out = false;           // out begins as 0, in place of what it holds
  // False: down(act(up(x))), where matrices of `up` are [width, hidden], and up_bias is null.
  bool gated = true;
};

// Sizes that determine the scratch memory of ExpertMlp.
struct ExpertShape {
  int32_t max_tokens;
  int32_t n_experts, n_used;
  int32_t hidden, width;
};

struct GatherRowsArgs {
  ConstAct x;           // [T, width]; float32 or out's dtype
  const int32_t* rows;  // [R]; null: rows 0 to R - 1
  Act out;              // [R, width]
  int32_t n_rows;       // R
  int32_t width;
};

}  // namespace stagecoach::kernels
