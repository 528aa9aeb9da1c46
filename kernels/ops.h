// The one interface between the models and the hardware: what a decoder needs, with shapes and
// dtypes.
//
// An Ops is bound to one device and behaves like one stream: calls are carried out in order, may
// return before the work is done, and never fail where they are called. The first failure latches,
// later calls then do nothing, and Synchronize() reports it. One thread at a time uses an Ops.
//
// Batch invariance: every output row depends only on its own inputs, never on how many rows are
// beside it. On the CPU that holds bit for bit: one packed layout and one order of accumulation for
// one row and for many.
//
// Activations are float32 here; pointers are device pointers; nothing allocates but Allocate.
// T: rows (tokens) of the step. R: rows to take logits of. S: sequences of the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dtype.h"
#include "common/gguf/gguf_types.h"
#include "common/model/model_spec.h"

namespace stagecoach::kernels {

inline constexpr int32_t kBlockTokens = 16;  // KV block size

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

struct EmbedArgs {
  const int32_t* ids;   // [T]; with table only
  const Matrix* table;  // [vocab, hidden], or null: the position rows alone
  float scale;
  const int32_t* positions;      // [T]; with position_table only
  const Matrix* position_table;  // [max_positions + offset, hidden], or null
  int32_t position_offset;
  float* out;  // [T, hidden]
  int32_t n_tokens;
};

struct GemmArgs {
  const float* x;     // [T, w.cols]
  const Matrix* w;    // [w.rows, w.cols]
  const float* bias;  // [w.rows] or null
  float* y;           // [T, w.rows] = x w^T + bias
  int32_t n_rows;     // T
  bool add_to_y;      // y += instead (the residual)
};

struct NormArgs {
  const float* x;       // [T, width]
  const float* weight;  // [width]
  const float* bias;    // [width] or null (kLayerNorm only)
  float* out;           // [T, width]; may be x
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

// Paged KV cache of one layer: [n_blocks, n_kv_heads, kBlockTokens, head_dim] each. Within a block
// and head the order of the kBlockTokens * head_dim elements is the device's own: whole blocks may
// be copied, single tokens not.
struct KvLayer {
  void* k;
  void* v;
  DType dtype;
};

// Optional per-head norm of q and k, rotation in halves (the "rotate_half" pairing of i and i +
// rotary_dim / 2), then k and v rows go into the cache.
struct RopeAppendArgs {
  float* qkv;  // [T, (n_heads + 2 * n_kv_heads) * head_dim]: q, k, v; q is rewritten in
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
  const float* qkv;  // [T, (n_heads + 2 * n_kv_heads) * head_dim]; only q is read
  KvLayer kv;
  const int32_t* seq_starts;  // [S + 1]: rows of sequence s are [seq_starts[s], seq_starts[s + 1])
  const int32_t* seq_positions;  // [S]: position of the sequence's first row
  const int32_t* block_tables;   // [S, block_table_stride]: block of each 16 positions; entries
                                 // behind a window may be -1
  int32_t block_table_stride;
  float* out;  // [T, n_heads * head_dim]
  int32_t n_seqs;
  int32_t n_heads, n_kv_heads, head_dim;
  float scale;
  float softcap;   // 0: off
  int32_t window;  // 0: full
};

struct ActivationArgs {
  const float* x;  // gated: [T, 2 * width] (gate, up); else [T, width]
  float* out;      // [T, width]; may be x when not gated
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
// weight * down(act(gate(x[t])) * up(x[t])). Rows are grouped by expert, so that a step reads each
// expert's weights once, and those of unused ones not at all.
struct ExpertMlpArgs {
  const float* x;                // [T, hidden]
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
  const float* x;       // [T, width]
  const int32_t* rows;  // [R]
  float* out;           // [R, width]
  int32_t n_rows;       // R
  int32_t width;
};

// A token that the sequence has had, for the penalties.
struct TokenCount {
  int32_t id;
  int32_t n_generated;  // 0: in the prompt only
};

// What to do with one row of logits, in this order: log-probabilities of the raw row; bias;
// forbidden ids and those not allowed; repetition, frequency and presence penalties; temperature;
// top-k, top-p (of what top-k left), min-p; the draw. Logits that are NaN count as -inf; a row
// without a value gives the first allowed id, else token 0. Ids outside the vocabulary are ignored.
struct SampleRow {
  float temperature = 0;  // 0: the largest logit, the lowest id among equals
  int32_t top_k = 0;      // 0: off
  float top_p = 1;
  float min_p = 0;
  float presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;
  uint64_t seed = 0;                   // Philox4x32-10 key
  uint64_t position = 0;               // its counter: the position that the new token will have
  std::span<const TokenCount> counts;  // empty unless a penalty is on
  std::span<const int32_t> forbidden;  // EOS and stop ids below min_tokens
  // A grammar's mask, in host memory: bit i % 32 of word i / 32 allows token i.
  // [(vocab + 31) / 32], or empty: all are allowed
  std::span<const uint32_t> allowed;
  std::span<const int32_t> bias_ids;
  std::span<const float> bias_values;
  // >= 0: nothing is drawn; this token's log-probability is wanted (prompt logprobs)
  int32_t given_token = -1;
  int32_t n_logprobs = -1;  // -1: none; else the token's own and this many of the most likely
};

struct SampledToken {
  int32_t token = 0;
  float logprob = 0;  // when n_logprobs >= 0
  // [n_logprobs], set by the caller; most likely first, lower id first among equals; past the
  // vocabulary -1 and -inf
  int32_t* top_ids = nullptr;
  float* top_logprobs = nullptr;
};

struct SampleArgs {
  const float* logits;  // [R, vocab]
  int32_t vocab;
  std::span<const SampleRow> rows;  // [R]
  std::span<SampledToken> out;      // [R]; host memory, valid after Synchronize
};

class Ops {
 public:
  virtual ~Ops() = default;

  // "cpu (AVX2, 2 threads)"
  virtual std::string Describe() const = 0;

  virtual absl::StatusOr<Buffer> Allocate(size_t bytes) = 0;
  // Host <-> device; plain copies on the CPU. Ordered with the ops; the host memory is free to
  // reuse on return.
  virtual void Upload(const void* host, void* device, size_t bytes) = 0;
  virtual void Download(const void* device, void* host, size_t bytes) = 0;  // complete on return

  virtual absl::StatusOr<Matrix> NewMatrix(int32_t rows, int32_t cols, DType dtype) = 0;
  // Bytes that NewMatrix would take.
  virtual size_t MatrixBytes(int32_t rows, int32_t cols, DType dtype) const = 0;
  // Rows [first_row, first_row + n_rows) of `matrix` from row-major host memory, converted to its
  // dtype. Several calls may fill one matrix (q, k and v; gate and up).
  virtual void PackRows(Matrix& matrix, int32_t first_row, int32_t n_rows, const void* source,
                        DType source_dtype) = 0;

  // Whether matrices of this encoding may be kept as they are stored; quantized ones are converted
  // to bfloat16 where not.
  virtual bool Keeps(gguf::TensorType) const { return false; }
  // REQUIRES of these: Keeps() every part's encoding, cols is a multiple of its blocks, and parts
  // have rows as kPartRows says.
  virtual absl::StatusOr<Matrix> NewMatrix(std::span<const MatrixPart>, int32_t /*cols*/) {
    return absl::UnimplementedError("this device keeps no weights as stored");
  }
  virtual size_t MatrixBytes(std::span<const MatrixPart>, int32_t /*cols*/) const { return 0; }
  // As PackRows, within one part: `source` has rows of its encoding, not aligned.
  virtual void PackStored(Matrix& /*matrix*/, int32_t /*first_row*/, int32_t /*n_rows*/,
                          const void* /*source*/) {}

  virtual void Embed(const EmbedArgs& args) = 0;
  virtual void Gemm(const GemmArgs& args) = 0;
  virtual void Norm(const NormArgs& args) = 0;
  virtual void RopeAppend(const RopeAppendArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;
  virtual void Activate(const ActivationArgs& args) = 0;
  virtual void Route(const RouteArgs& args) = 0;
  virtual void ExpertMlp(const ExpertMlpArgs& args) = 0;
  virtual size_t ExpertScratchBytes(const ExpertShape& shape) const = 0;
  virtual void GatherRows(const GatherRowsArgs& args) = 0;
  // x = cap * tanh(x / cap), n values
  virtual void SoftCap(float* x, int64_t n, float cap) = 0;
  virtual void Sample(const SampleArgs& args) = 0;

  // Waits for everything queued; the first failure since the last call, if any.
  virtual absl::Status Synchronize() = 0;
};

}  // namespace stagecoach::kernels
