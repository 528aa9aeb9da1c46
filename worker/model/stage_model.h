// A pipeline stage's share of the model: a range of layers, with the embedding before the first and
// the final norm and logits after the last. Runs any ModelSpec on any Ops. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
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

namespace stagecoach::worker {

struct StageModelOptions {
  std::string model_dir;    // or a .gguf file
  std::string adapter_dir;  // a LoRA adapter to merge into the weights; empty: none
  int32_t first_layer = 0;
  int32_t n_layers = 0;
  bool is_first = false;       // embeds
  bool is_last = false;        // norms and takes logits
  std::optional<DType> dtype;  // of weights and KV cache; absent: as stored
  bool dummy_weights =
      false;  // random, from config.json alone; the same for every split into stages
  int32_t max_batched_tokens = 512;
  int32_t max_sequences = 64;
  int32_t max_logit_rows = 0;    // whose logits are taken at once, at most; 0: max_sequences
  int32_t max_model_len = 2048;  // tokens
  std::shared_ptr<WorkCounter> work = std::make_shared<WorkCounter>();  // grows with each layer
};

// Of max_sequences those that decode at once: there is a microbatch a stage.
inline int32_t SequencesAtOnce(uint32_t max_sequences, uint32_t n_stages) {
  return static_cast<int32_t>((max_sequences + n_stages - 1) / std::max(1u, n_stages));
}

// Rows of a step; absent: all.
using LogitRows = std::optional<std::span<const int32_t>>;

// Called from the loading thread with bytes of this stage's tensors. Not OK: the load ends with
// that.
using LoadProgressFn = std::function<absl::Status(uint64_t bytes_done, uint64_t bytes_total)>;

class StageModel {
 public:
  // Checks every tensor's name, shape and dtype before any large allocation, then reads only this
  // range's. INVALID_ARGUMENT lists all problems at once; `ops` outlives the model.
  static absl::StatusOr<std::unique_ptr<StageModel>> Load(const StageModelOptions& options,
                                                          kernels::Ops* ops,
                                                          const LoadProgressFn& progress);
  virtual ~StageModel() = default;

  virtual const ModelSpec& spec() const = 0;
  virtual uint64_t weights_bytes() const = 0;
  virtual uint64_t scratch_bytes() const = 0;
  // By KV group: bytes of one block over this stage's layers of the group (0: none here).
  virtual std::vector<uint64_t> kv_block_bytes() const = 0;

  // By KV group. Before the first Forward; a later call frees what was there first (a small cache
  // serves the profiling run, each Join brings the real one).
  virtual absl::Status AllocateKv(std::span<const uint64_t> n_blocks) = 0;

  // After AllocateKv, before the first Forward that counts: what the device can do ahead of it.
  // Overwrites the cache. progress: steps prepared, of how many; may be empty.
  virtual absl::Status Prepare(
      const std::function<void(int32_t done, int32_t total)>& progress) = 0;

  // Runs this stage's layers. `hidden` is [T, hidden_size] float32 device memory, the residual
  // folded in: input and output, except that stage 0 fills it from batch.token_ids. The model keeps
  // the sequences' block tables by slot. logit_rows: on the last stage those that Logits may be
  // asked for, rising, so that the last layer need not end the others; absent: any, and on other
  // stages.
  virtual void Forward(const kernels::StepBatch& batch, float* hidden, LogitRows logit_rows) = 0;

  // Last stage: final norm and logits (soft cap applied) of `rows` of the step, at most
  // max_logit_rows() at once; the result [R, vocab_size] is valid until the next call. hidden: what
  // Forward had, untouched since. REQUIRES: rows are of Forward's logit_rows.
  virtual float* Logits(const float* hidden, std::span<const int32_t> rows) = 0;
  virtual int32_t max_logit_rows() const = 0;

  // [max_batched_tokens, hidden_size] float32 scratch of the model's own.
  virtual float* hidden_buffer() = 0;
  // [max_sequences] int32 device memory: what kernels::kSampledToken stands for, by slot.
  virtual int32_t* sampled_tokens() = 0;
};

}  // namespace stagecoach::worker
