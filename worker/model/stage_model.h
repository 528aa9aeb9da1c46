// One pipeline stage's part of the model: a range of layers, with the embedding before the first
// layer and the final norm and logits after the last. Runs any ModelSpec on any Ops. Use from one
// thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "common/work_counter.h"
#include "kernels/ops.h"
#include "stagecoach/v1/load.pb.h"

namespace stagecoach::worker {

// Memory that may outlive this process. `find` returns memory of this many bytes which an earlier
// process has filled in the same way, if there is some; `make` returns new memory. Both null: the
// memory ends with the process.
struct LastingMemory {
  std::function<std::optional<kernels::Buffer>(size_t bytes)> find;
  std::function<absl::StatusOr<kernels::Buffer>(size_t bytes)> make;
};

struct StageModelOptions {
  std::string model_dir;  // or a .gguf file
  int32_t first_layer = 0;
  int32_t n_layers = 0;
  bool is_first = false;  // computes the embedding
  bool is_last = false;   // computes the final norm and, without pooling, logits
  v1::LoadConfig config;
  int32_t max_logit_rows = 0;  // largest number of rows with logits per call; 0: max_sequences
  std::shared_ptr<WorkCounter> work = std::make_shared<WorkCounter>();  // grows with each layer
  LastingMemory weights;                                                // used during Load
};

// The number of max_sequences that decode in one step: there is one microbatch per stage.
inline int32_t SequencesAtOnce(int32_t max_sequences, uint32_t n_stages) {
  const int32_t n = std::max(1, static_cast<int32_t>(n_stages));
  return (max_sequences + n - 1) / n;
}

// Rows of a step. Absent: all rows.
using LogitRows = std::optional<std::span<const int32_t>>;

// Called on the loading thread with the number of bytes of this stage's tensors. An error ends the
// load with that status.
using LoadProgressFn = std::function<absl::Status(uint64_t bytes_done, uint64_t bytes_total)>;

// The part of a KV block, or of a recurrent state, that one layer of the stage holds.
struct KvPart {
  int32_t layer = 0;     // counted over the whole model
  int32_t kv_group = 0;  // whose block ids it has; of a state: 0
  uint64_t bytes = 0;    // of keys and values in the order of Ops::ExportKv, or of the state
};

class StageModel {
 public:
  // Checks every tensor's name, shape and dtype before any large allocation, then reads only the
  // tensors of this range. INVALID_ARGUMENT lists all problems at once. `ops` must outlive the
  // model.
  static absl::StatusOr<std::unique_ptr<StageModel>> Load(const StageModelOptions& options,
                                                          kernels::Ops* ops,
                                                          const LoadProgressFn& progress);
  virtual ~StageModel() = default;

  virtual const ModelSpec& spec() const = 0;
  virtual uint64_t weights_bytes() const = 0;
  // Parts of weights_bytes(), by EncodingName.
  virtual std::map<std::string, uint64_t> weights_by_encoding() const { return {}; }
  virtual uint64_t scratch_bytes() const = 0;
  // By KV group: bytes of one block over this stage's layers of the group (0: no layers here).
  virtual std::vector<uint64_t> kv_block_bytes() const = 0;

  // `n_blocks` is by KV group. Call it before the first Forward. A later call frees the previous
  // allocation first: the profiling run uses a small cache, and each Join allocates the real one.
  // Memory that `memory` finds keeps its keys and values.
  virtual absl::Status AllocateKv(std::span<const uint64_t> n_blocks,
                                  const LastingMemory& memory = {}) = 0;

  // Bytes of one sequence's state in this stage's recurrent layers.
  virtual uint64_t state_bytes() const { return 0; }
  // The same as AllocateKv for the states: one for each slot that is used, then those that steps
  // save (StepBatch::state_saves).
  virtual absl::Status AllocateStates(uint64_t) { return absl::OkStatus(); }
  // The stage's part of a state, by recurrent layer.
  virtual std::vector<KvPart> state_parts() const { return {}; }
  // Device memory of state_parts()[part] of this state. Its order is the device's: see numerics ids
  // (kernels/ops.h). REQUIRES: AllocateStates().
  virtual void* state(size_t /*part*/, uint32_t /*number*/) { return nullptr; }

  // The stage's part of a KV block, by layer.
  virtual std::vector<KvPart> kv_parts() const = 0;
  // Copy kv_parts()[part] of blocks to or from host memory: see KvCopyArgs, Ops::ExportKv and
  // Ops::ImportKv. REQUIRES: AllocateKv().
  virtual void ExportKv(size_t part, std::span<const kernels::KvBlockCopy> copies, void* host,
                        size_t place_bytes) = 0;
  virtual void ImportKv(size_t part, std::span<const kernels::KvBlockCopy> copies, void* host,
                        size_t place_bytes) = 0;

  // Prepares work that the device can do in advance, such as capturing CUDA graphs. Call it after
  // AllocateKv. It reads and writes nothing in the cache, because captured work does not run.
  // progress: steps prepared so far, and in total; may be empty.
  virtual absl::Status Prepare(
      const std::function<void(int32_t done, int32_t total)>& progress) = 0;

  // Runs this stage's layers. `hidden` is [T, hidden_size] float32 device memory with the residual
  // added in, followed by the inputs of layers of a model with LayerInputsSpec, [T, n_layers,
  // width]. It is output, and also input unless the stage is the first one, which reads
  // batch.token_ids, or hidden states travel in another type: see passed_buffer(). The model keeps
  // the sequences' block tables by slot. logit_rows: on the last stage, the ascending rows that
  // Logits may be asked for, so that the last layer can skip the end of the other rows. Absent
  // (always so on other stages): Logits may be asked for any row.
  virtual void Forward(const kernels::StepBatch& batch, float* hidden, LogitRows logit_rows) = 0;

  // Last stage: final norm and logits (with soft cap) of `rows` of the step, at most
  // max_logit_rows() per call. The result [R, vocab_size] is valid until the next call. hidden: as
  // left by Forward. REQUIRES: `rows` are among Forward's logit_rows.
  virtual float* Logits(const float* hidden, std::span<const int32_t> rows) = 0;
  virtual int32_t max_logit_rows() const = 0;

  // Last stage of a model with ModelSpec::pooling, in place of Logits: the same rows after the
  // final norm, as [R, hidden_size] float32.
  virtual const float* FinalHidden(const float* hidden, std::span<const int32_t> rows) = 0;

  // The model's own scratch, max_batched_tokens * ModelSpec::passed_width float32.
  virtual float* hidden_buffer() = 0;
  // Hidden states as they travel (passed_rows.h), for max_batched_tokens rows: Forward reads those
  // of the stage before from here, and leaves those for the next stage here. It is hidden_buffer()
  // if they travel as float32.
  virtual void* passed_buffer() = 0;
  // [max_sequences] int32 device memory, by slot: the tokens that kernels::kSampledToken refers to.
  virtual int32_t* sampled_tokens() = 0;
};

}  // namespace stagecoach::worker
