// The interface between the models and the hardware. It lists every operation that a decoder needs,
// with shapes and dtypes.
//
// An Ops is bound to one device and behaves like one stream. Calls run in order. A call without a
// status result may return before its work is done. If such a call fails, the failure latches:
// later calls then do nothing, and Synchronize(), Wait() and Failure() report it. Only one thread
// at a time may use an Ops; a method that another thread may call says so.
//
// Batch invariance: every output row depends only on its own inputs, never on how many rows the
// batch has. On the CPU this holds bit for bit: one row and many rows use the same packed layout
// and the same order of accumulation. On CUDA it holds bit for bit only with
// CudaOptions::batch_invariant.
//
// Pointers are device pointers unless a comment says otherwise. Buffers come from the Allocate
// calls, NewMatrix and NewStepInputs. An operation allocates at most scratch space of its own, when
// it first needs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/check.h"
#include "common/dtype.h"
#include "common/status.h"
#include "kernels/host_copy.h"
#include "kernels/op_args.h"
#include "kernels/recurrent_args.h"
#include "kernels/shared_buffer.h"

namespace stagecoach::kernels {

// A token that the sequence already contains. The penalties read it.
struct TokenCount {
  int32_t id;
  int32_t n_generated;  // occurrences in the generated text; 0: the token is only in the prompt
};

// The numbers that shape the distribution of a sequence's tokens. A plain struct, which every
// kernel reads as it is.
struct SampleParams {
  float temperature = 0;  // 0: greedy, the largest logit; the lowest id on a tie
  int32_t top_k = 0;      // 0: off
  float top_p = 1;
  float min_p = 0;
  float top_n_sigma = 0;  // 0 or less: off
  float presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;

  // Calls visit(name, field) for each number; `name` is the field's name in the protocol.
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

// How to process one row of logits. The order is: log-probabilities of the raw row; bias; mask of
// forbidden ids and of ids that are not allowed; repetition, frequency and presence penalties;
// top-n-sigma; temperature; top-k; top-p over the tokens that top-k keeps; min-p; the random draw.
// A NaN logit counts as -inf. If every logit is -inf, the result is the first allowed id, else
// token 0. Ids outside the vocabulary are ignored.
//
// Top-n-sigma keeps the tokens whose logit is at most n standard deviations below the largest; the
// deviation is that of all logits but -inf.
//
// Penalties, for each id in `counts`: the repetition penalty divides a positive logit and
// multiplies a negative one; the frequency penalty is subtracted n_generated times; the presence
// penalty is subtracted once if n_generated > 0. Sources: repetition penalty, N. Keskar et al.,
// "CTRL", 2019; top-p, A. Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019;
// top-n-sigma, C. Tang et al., "Top-nσ: Not All Logits Are You Need", 2024.
struct SampleRow {
  SampleParams params;
  uint64_t seed = 0;                   // Philox4x32-10 key
  uint64_t position = 0;               // Philox counter: the position of the new token
  std::span<const TokenCount> counts;  // empty unless a penalty is on
  std::span<const int32_t> forbidden;  // EOS and stop ids before min_tokens is reached
  // Grammar mask in host memory: bit i % 32 of word i / 32 allows token i. [(vocab + 31) / 32]
  // words; empty: every token is allowed.
  std::span<const uint32_t> allowed;
  std::span<const int32_t> bias_ids;
  std::span<const float> bias_values;
  // >= 0: no draw; the call only computes this token's log-probability (prompt logprobs).
  int32_t given_token = -1;
  int32_t slot = -1;        // >= 0: index in SampleArgs::sampled that receives the drawn token
  int32_t n_logprobs = -1;  // -1: none; else the token's own and the n most likely
};

struct SampledToken {
  int32_t token = 0;
  float logprob = 0;  // valid if n_logprobs >= 0
  // [n_logprobs] each, set by the caller. Most likely first, the lower id first on a tie. Entries
  // beyond the vocabulary hold -1 and -inf.
  int32_t* top_ids = nullptr;
  float* top_logprobs = nullptr;
};

struct SampleArgs {
  float* logits;  // [R, vocab]; contents are undefined after the call
  int32_t vocab;
  std::span<const SampleRow> rows;  // [R]; host memory, which the caller may reuse on return
  // [R]; `out` and the arrays that it points to come from AllocateHost; valid after Wait for a
  // later Mark
  std::span<SampledToken> out;
  int32_t* sampled;  // StepInputs::sampled, or null
};

// Recorded calls (a CUDA graph). Replay() repeats them any number of times with the same arguments.
// The memory that the arguments point to may hold new values at each replay.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void Replay() = 0;
};

struct MemoryInUse {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
};

// The device's own queue behind an Ops, for callers that add their own work between its calls.
struct NativeQueue {
  void* stream = nullptr;  // a cudaStream_t; null: the device has no stream
  int32_t device = 0;      // CUDA device ordinal
};

class Ops {
 public:
  virtual ~Ops() = default;

  // Example: "cpu (AVX2, 2 threads)".
  virtual std::string Describe() const = 0;
  // Names what decides the bits of the results, beside the arguments: two Ops with the same id
  // compute the same bits. Example: "cpu-1 AVX2".
  virtual std::string Numerics() const = 0;

  // Device memory, zeroed. RESOURCE_EXHAUSTED if there is not enough.
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes) = 0;
  // Like Allocate, but another process can map the memory. It starts at a multiple of 256 bytes.
  // UNIMPLEMENTED if the device has no such memory.
  virtual absl::StatusOr<SharedBuffer> AllocateShared(size_t) {
    return absl::UnimplementedError("this device has no memory that outlives a process");
  }
  // Maps memory of AllocateShared, made by any process on the same device for the same number of
  // bytes, with its contents. `fd` stays the caller's.
  virtual absl::StatusOr<Buffer> MapShared(int /*fd*/, size_t /*bytes*/) {
    return absl::UnimplementedError("this device has no memory that outlives a process");
  }

  // This memory of AllocateShared is complete, and is read often from now on.
  virtual void Settle(const Buffer& /*memory*/) {}

  // Memory for the keys and values of KvLayers. Each layer's k and v start at a multiple of 256
  // bytes in it.
  absl::StatusOr<Buffer> AllocateKv(size_t bytes) {
    SC_ASSIGN_OR_RETURN(Buffer memory, Allocate(bytes));
    SC_RETURN_IF_ERROR(AdoptKv(memory, "").status());
    return memory;
  }
  // Makes `memory` a place for keys and values. Returns the device's notes about it, as bytes.
  // notes: those of the process that filled the memory; empty: the memory is new.
  // INVALID_ARGUMENT if they are none for this memory.
  virtual absl::StatusOr<std::string> AdoptKv(const Buffer& /*memory*/,
                                              std::string_view /*notes*/) {
    return "";
  }
  // Host memory that the device can write: pinned memory on CUDA, with undefined contents. It is
  // the target of DownloadLater and of Sample.
  virtual absl::StatusOr<Buffer> AllocateHost(size_t bytes) { return Allocate(bytes); }
  // Copies between host and device; plain copies on the CPU. They run in order with the other
  // calls. The caller may reuse the host memory of Upload on return.
  virtual void Upload(const void* host, void* device, size_t bytes) = 0;
  virtual void Download(const void* device, void* host, size_t bytes) = 0;  // complete on return
  // `host` comes from AllocateHost. The copy is complete after Wait for a later Mark.
  virtual void DownloadLater(const void* device, void* host, size_t bytes) {
    Download(device, host, bytes);
  }
  // Copies full KV blocks to host memory, in order with the other calls and never within Record.
  // args.host is complete after Wait for a later Mark.
  virtual void ExportKv(const KvCopyArgs& args) = 0;
  // Overwrites the blocks with what ExportKv of any device has written:
  // all tokens of these blocks, and nothing of others. The same rules apply. args.host must stay
  // unchanged until Wait for a later Mark.
  virtual void ImportKv(const KvCopyArgs& args) = 0;

  // Copies host memory to the device while later calls run: the copies begin when all calls before
  // are done, and calls after JoinCopies see them. The host memory must stay unchanged until Wait
  // for a Mark after JoinCopies. Not within Record.
  virtual void CopyBeside(std::span<const HostCopy> copies) {
    for (const HostCopy& copy : copies) Upload(copy.host, copy.device, copy.bytes);
  }
  virtual void JoinCopies() {}

  // An error means that this process has lost the device, and every further call on it fails. A new
  // process may be able to use the device. Any thread may call this.
  virtual absl::Status CheckDevice() const { return absl::OkStatus(); }

  // Device memory, including the use by other processes.
  virtual MemoryInUse Memory() const = 0;
  // Whether the device has memory of its own, separate from host memory.
  virtual bool has_own_memory() const { return false; }

  // The dtype of activations in a model of dtype `model`, and the dtype that the device uses for
  // weights whose file dtype is `stored`.
  virtual DType ActivationDType(DType model) const {
    static_cast<void>(model);
    return DType::kF32;
  }
  virtual DType WeightDType(DType stored, DType model) const {
    static_cast<void>(model);
    return stored;
  }

  // Allocates a matrix of one dtype for PackRows. RESOURCE_EXHAUSTED if there is not enough memory.
  absl::StatusOr<Matrix> NewMatrix(int32_t rows, int32_t cols, DType dtype) {
    SC_CHECK(rows > 0 && cols > 0);
    SC_ASSIGN_OR_RETURN(Buffer memory, Allocate(MatrixBytes(rows, cols, dtype)));
    return Matrix{std::move(memory), dtype, rows, cols};
  }
  // Bytes of a matrix's memory.
  virtual size_t MatrixBytes(int32_t rows, int32_t cols, DType dtype) const = 0;
  // Fills rows [first_row, first_row + n_rows) of `matrix` from row-major host memory and converts
  // them to the matrix's dtype. Several calls may fill one matrix (q, k and v; gate and up).
  virtual void PackRows(Matrix& matrix, int32_t first_row, int32_t n_rows, const void* source,
                        DType source_dtype) = 0;

  // Whether the device computes directly on rows of `cols` elements in this encoding. If not,
  // quantized matrices are converted to bfloat16 at load.
  virtual bool Keeps(const Encoding&, int32_t /*cols*/) const { return false; }
  // The same for matrices of experts (ExpertMlpArgs).
  virtual bool KeepsExperts(const Encoding& encoding, int32_t cols) const {
    return Keeps(encoding, cols);
  }
  // REQUIRES: Keeps() every part's encoding; every part but the last has a multiple of kPartRows
  // rows.
  absl::StatusOr<Matrix> NewMatrix(std::span<const MatrixPart> parts, int32_t cols) {
    SC_ASSIGN_OR_RETURN(Buffer memory, Allocate(MatrixBytes(parts, cols)));
    return MatrixOf(std::move(memory), parts, cols);
  }
  // The same in given memory of MatrixBytes, which may hold such a matrix already.
  virtual absl::StatusOr<Matrix> MatrixOf(Buffer /*memory*/, std::span<const MatrixPart>,
                                          int32_t /*cols*/) {
    return absl::UnimplementedError("this device keeps no weights as stored");
  }
  virtual size_t MatrixBytes(std::span<const MatrixPart>, int32_t /*cols*/) const { return 0; }
  // Like PackRows, within one part. `source` has rows in the part's encoding
  // (common/encoding/rows.h).
  virtual void PackStored(Matrix& /*matrix*/, int32_t /*first_row*/, int32_t /*n_rows*/,
                          const void* /*source*/) {}
  // Input `i` of the part that has row first_row is input order[i] of the product. Once, after all
  // rows of a part whose encoding is permuted. order: [cols]
  virtual void PackInputOrder(Matrix& /*matrix*/, int32_t /*first_row*/,
                              std::span<const int32_t> /*order*/) {}

  // The size of StepLimits::attention_scratch with which attention over prompts runs at full speed
  // for any context length. 0: the device uses no scratch.
  virtual size_t AttentionScratchBytes(const StepLimits&) const { return 0; }
  // The inputs of one step. BuildStep overwrites the rows of the previous step.
  virtual absl::StatusOr<std::unique_ptr<StepInputs>> NewStepInputs(const StepLimits& limits) = 0;
  virtual void BuildStep(const StepBatch& batch, StepInputs* inputs) = 0;

  // The operations. Their argument structs (op_args.h) document shapes, dtypes and formulas.
  virtual void Embed(const EmbedArgs& args) = 0;
  virtual void Gemm(const GemmArgs& args) = 0;
  // Gemm, then Activate on its result. activation.x is gemm.y; its contents are undefined
  // afterwards.
  virtual void GemmActivate(const GemmArgs& gemm, const ActivationArgs& activation) {
    Gemm(gemm);
    Activate(activation);
  }
  virtual void Norm(const NormArgs& args) = 0;
  // Norm, then Gemm or GemmActivate on its result. norm.out is gemm.x; its contents are undefined
  // afterwards.
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
  virtual void HeadGemm(const HeadGemmArgs& args) = 0;
  virtual void LatentAppend(const LatentAppendArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;
  virtual void Activate(const ActivationArgs& args) = 0;
  virtual void Route(const RouteArgs& args) = 0;
  // Norm, then Gemm on its result, then Route on the product. norm.out is gemm.x, and route.logits
  // is gemm.y.
  virtual void NormRoute(const NormArgs& norm, const GemmArgs& gemm, const RouteArgs& route) {
    Norm(norm);
    Gemm(gemm);
    Route(route);
  }
  // Mixture of experts on rows that Route has assigned.
  virtual void ExpertMlp(const ExpertMlpArgs& args) = 0;
  // Bytes of ExpertMlpArgs::scratch for these sizes.
  virtual size_t ExpertScratchBytes(const ExpertShape& shape) const = 0;
  // recurrent_args.h documents these.
  virtual void Recurrence(const RecurrenceArgs& args) = 0;
  virtual void SplitGate(const SplitGateArgs& args) = 0;
  virtual void SigmoidGate(const SigmoidGateArgs& args) = 0;
  virtual void CopyStates(const CopyStatesArgs& args) = 0;
  virtual void GatherRows(const GatherRowsArgs& args) = 0;
  // Converts n values to to's dtype; to 16 bits, to nearest with ties to even. from and to do not
  // overlap. Dtypes: float32, bfloat16, float16.
  virtual void Convert(ConstAct from, Act to, int64_t n) = 0;
  // x *= *factor for n values; both are in device memory.
  virtual void Scale(float* x, int64_t n, const float* factor) = 0;
  // x = cap * tanh(x / cap) for n values.
  virtual void SoftCap(float* x, int64_t n, float cap) = 0;
  virtual void Sample(const SampleArgs& args) = 0;

  // Records `calls` without running them (stream capture into a CUDA graph). Returns null if the
  // device gains nothing from a recording. `calls` may only contain operations, and each must have
  // run before with the same number of rows.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<void()>& calls) {
    static_cast<void>(calls);
    return nullptr;
  }
  // While rehearsal is on, results are undefined: the device may use the calls to autotune.
  virtual absl::Status Rehearse(bool on) {
    static_cast<void>(on);
    return absl::OkStatus();
  }

  // What rehearsals have found, as bytes for UseTuning in another process of the same build on the
  // same device. Empty: the device does not tune.
  virtual std::string Tuning() const { return ""; }
  // Takes over another process's tuning, so that a rehearsal has less to find. INVALID_ARGUMENT if
  // the bytes do not fit this process; it then has the tuning that it had.
  virtual absl::Status UseTuning(std::string_view) { return absl::OkStatus(); }

  // Waits for all queued work. Returns the first failure since the previous Synchronize, if any,
  // and clears it.
  virtual absl::Status Synchronize() = 0;

  virtual NativeQueue native_queue() const { return {}; }
  // Reserves `n` SMs for other kernels that run at the same time, such as NCCL receives that wait.
  // Kernels that size their grid to the number of SMs then use `n` fewer. Call this before
  // NewStepInputs.
  virtual void LeaveMultiprocessors(int32_t n) { static_cast<void>(n); }

  // The first failure of a call so far, if any, without waiting. Calls after that failure did
  // nothing. The default, which the CPU uses, always returns OK; there, Wait() reports the failure.
  virtual absl::Status Failure() const { return absl::OkStatus(); }

  // Whether calls return before their work is done. If not, Wait returns at once.
  virtual bool runs_ahead() const { return false; }
  // A position in the queue: it covers the work of all calls so far.
  virtual uint64_t Mark() { return 0; }
  // Waits until the device has done the work before `mark`. Returns the first failure so far, if
  // any, without clearing it. Another thread than the one that uses the Ops may call this. Marks
  // must be waited for in order, and at most kMarks may be pending.
  virtual absl::Status Wait(uint64_t mark) = 0;
  static constexpr uint64_t kMarks = 8;
};

}  // namespace stagecoach::kernels
