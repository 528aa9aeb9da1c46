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
// Pointers are device pointers unless something else is said; nothing allocates but Allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dtype.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels {

// A token that the sequence has had, for the penalties.
struct TokenCount {
  int32_t id;
  int32_t n_generated;  // 0: in the prompt only
};

// The numbers that shape a sequence's distribution. A plain struct: every kernel reads this one.
struct SampleParams {
  float temperature = 0;  // 0: the largest logit, the lowest id among equals
  int32_t top_k = 0;      // 0: off
  float top_p = 1;
  float min_p = 0;
  float top_n_sigma = 0;  // 0 or less: off
  float presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;

  // visit(name, field) for each of them, by its name in the protocol.
  template <typename Params, typename Visit>
  static void ForEach(Params& params, const Visit& visit) {
    visit("temperature", params.temperature);
    visit("top_k", params.top_k);
    visit("top_p", params.top_p);
    visit("min_p", params.min_p);
    visit("top_n_sigma", params.top_n_sigma);
    visit("presence_penalty", params.presence_penalty);
    visit("frequency_penalty", params.frequency_penalty);
    visit("repetition_penalty", params.repetition_penalty);
  }
};

// What to do with one row of logits, in this order: log-probabilities of the raw row; bias;
// forbidden ids and those not allowed; repetition, frequency and presence penalties; top-n-sigma
// ("Top-nσ: Not All Logits Are You Need", Tang et al. 2024: the tokens that are at most n standard
// deviations, of all values but -inf, below the largest); temperature; top-k, top-p (of what
// top-n-sigma and top-k left), min-p; the draw. Logits that are NaN count as -inf; a row
// without a value gives the first allowed id, else token 0. Ids outside the vocabulary are ignored.
struct SampleRow {
  SampleParams params;
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
  int32_t slot = -1;        // >= 0: entry of SampleArgs::sampled that the drawn token goes to
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
  float* logits;  // [R, vocab]; of no use afterwards
  int32_t vocab;
  std::span<const SampleRow> rows;  // [R]; host memory, free to reuse on return
  // [R]; of AllocateHost, as are the arrays that it points to; valid after a Mark's Wait
  std::span<SampledToken> out;
  int32_t* sampled;  // StepInputs::sampled, or null
};

// Calls that were recorded, to be carried out again as often as one likes with the same arguments;
// what these point to may have changed.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void Replay() = 0;
};

struct MemoryInUse {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
};

// Where calls are queued, in the device's own terms, for those who put work of theirs between them.
struct NativeQueue {
  void* stream = nullptr;  // a cudaStream_t; null: there is none
  int32_t device = 0;      // by CUDA's count
};

class Ops {
 public:
  virtual ~Ops() = default;

  // "cpu (AVX2, 2 threads)"
  virtual std::string Describe() const = 0;

  virtual absl::StatusOr<Buffer> Allocate(size_t bytes) = 0;
  // For the keys and values of KvLayers, which begin at multiples of 256 bytes of it.
  virtual absl::StatusOr<Buffer> AllocateKv(size_t bytes) { return Allocate(bytes); }
  // Host memory that the device reaches: for what comes back from it later.
  virtual absl::StatusOr<Buffer> AllocateHost(size_t bytes) { return Allocate(bytes); }
  // Host <-> device; plain copies on the CPU. Ordered with the ops; the host memory is free to
  // reuse on return.
  virtual void Upload(const void* host, void* device, size_t bytes) = 0;
  virtual void Download(const void* device, void* host, size_t bytes) = 0;  // complete on return
  // host: of AllocateHost; complete after a later Mark's Wait.
  virtual void DownloadLater(const void* device, void* host, size_t bytes) {
    Download(device, host, bytes);
  }

  // Not OK: the device is lost to this process, and whatever it tries will fail; another process
  // may have it again. Any thread.
  virtual absl::Status CheckDevice() const { return absl::OkStatus(); }

  // Of the device's memory, other processes' use included.
  virtual MemoryInUse Memory() const = 0;
  // Whether that is not the host's.
  virtual bool has_own_memory() const { return false; }

  // The type of the activations in a model of type `model`, and the one in which weights that are
  // stored as `stored` are kept.
  virtual DType ActivationDType(DType model) const {
    static_cast<void>(model);
    return DType::kF32;
  }
  virtual DType WeightDType(DType stored, DType model) const {
    static_cast<void>(model);
    return stored;
  }

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

  // What StepLimits::attention_scratch is to hold, so that prompts are fast whatever came before.
  virtual size_t AttentionScratchBytes(const StepLimits&) const { return 0; }
  // The step's rows; those of the step before are gone.
  virtual absl::StatusOr<std::unique_ptr<StepInputs>> NewStepInputs(const StepLimits& limits) = 0;
  virtual void BuildStep(const StepBatch& batch, StepInputs* inputs) = 0;

  virtual void Embed(const EmbedArgs& args) = 0;
  virtual void Gemm(const GemmArgs& args) = 0;
  // Gemm, then Activate of what it gives: activation.x is gemm.y, of no use afterwards.
  virtual void GemmActivate(const GemmArgs& gemm, const ActivationArgs& activation) {
    Gemm(gemm);
    Activate(activation);
  }
  virtual void Norm(const NormArgs& args) = 0;
  // Norm, then Gemm or GemmActivate of what it gives: norm.out is gemm.x, of no use afterwards.
  virtual void NormGemm(const NormArgs& norm, const GemmArgs& gemm) {
    Norm(norm);
    Gemm(gemm);
  }
  virtual void NormGemmActivate(const NormArgs& norm, const GemmArgs& gemm,
                                const ActivationArgs& activation) {
    Norm(norm);
    GemmActivate(gemm, activation);
  }
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

  // What `calls` does, recorded and not done; null where the device would gain nothing by it. They
  // are operations only, and have all run before with as many rows.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<void()>& calls) {
    static_cast<void>(calls);
    return nullptr;
  }
  // While on, results mean nothing: the device may use calls to find out how it is fastest.
  virtual absl::Status Rehearse(bool on) {
    static_cast<void>(on);
    return absl::OkStatus();
  }

  // Waits for everything queued; the first failure since the last call, if any.
  virtual absl::Status Synchronize() = 0;

  virtual NativeQueue native_queue() const { return {}; }
  // That `n` multiprocessors are others' while this one's work runs: work that is shared out to as
  // many blocks as there are multiprocessors leaves them out. Before NewStepInputs.
  virtual void LeaveMultiprocessors(int32_t n) { static_cast<void>(n); }

  // As Wait's, but waits for nothing: the first failure so far of a call, if any. What was called
  // after it is not done.
  virtual absl::Status Failure() const { return absl::OkStatus(); }

  // Whether calls return before the work is done. If not, Wait returns at once.
  virtual bool runs_ahead() const { return false; }
  // A place in the queue: the work of all calls before this one.
  virtual uint64_t Mark() { return 0; }
  // Waits for that work; the first failure so far, if any, which stays. The one call that another
  // thread may make. Marks are waited for in their order, and at most kMarks are pending.
  virtual absl::Status Wait(uint64_t mark) = 0;
  static constexpr uint64_t kMarks = 8;
};

}  // namespace stagecoach::kernels
