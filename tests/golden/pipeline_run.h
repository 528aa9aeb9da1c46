// A pipeline of StageModels in one process. Hidden states are passed from stage to stage; block ids
// are assigned in random order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "worker/model/stage_model.h"

namespace stagecoach {

struct PipelineOptions {
  std::string model_dir;
  std::string adapter_dir;  // empty: none
  int32_t n_stages = 1;
  std::optional<DType> dtype;
  v1::KvDType kv_dtype = v1::KV_DTYPE_AUTO;
  v1::HiddenDType hidden_dtype = v1::HIDDEN_DTYPE_FLOAT32;
  bool dummy_weights = false;
  int32_t max_batched_tokens = 512;
  int32_t max_model_len = 512;  // tokens
  uint64_t n_blocks = 256;      // per KV group
};

struct TestSequence {
  int32_t slot = 0;
  std::vector<int32_t> ids;
  int32_t n_done = 0;                        // tokens whose keys and values are in the cache
  std::vector<std::vector<int32_t>> blocks;  // per KV group
};

class PipelineRun {
 public:
  static absl::StatusOr<std::unique_ptr<PipelineRun>> Load(const PipelineOptions& options,
                                                           kernels::Ops* ops);

  // Captures the stages' decode steps, if the device can.
  absl::Status Prepare();

  // At most kMaxSequences may exist at a time.
  TestSequence NewSequence(std::vector<int32_t> ids);
  static constexpr int32_t kMaxSequences = 64;

  struct Chunk {
    TestSequence* sequence;
    int32_t n_tokens;  // number of its ids, starting at n_done
  };
  // Runs one step on all stages. logit_rows: the argument of the last stage's Forward.
  void Step(std::span<const Chunk> chunks, worker::LogitRows logit_rows = std::nullopt);
  // Logits of rows of the last step; a row is an index over all chunks' tokens. Each result has
  // vocab_size elements. Of an embedding model: final hidden states, hidden_size elements each.
  std::vector<std::vector<float>> Logits(std::span<const int32_t> rows);

  // Runs the rest of `sequence` in steps of at most `chunk_tokens`. Returns the logits of every
  // position from n_done on.
  std::vector<std::vector<float>> Prefill(TestSequence* sequence, int32_t chunk_tokens);

  const ModelSpec& spec() const { return stages_.front()->spec(); }
  const worker::StageModel& stage(int32_t i) const { return *stages_[static_cast<size_t>(i)]; }

 private:
  explicit PipelineRun(kernels::Ops* ops) : ops_(ops) {}
  int32_t TakeBlock(size_t group);

  kernels::Ops* ops_;
  v1::LoadConfig config_;
  std::vector<std::unique_ptr<worker::StageModel>> stages_;
  std::vector<std::vector<int32_t>> free_blocks_;  // per KV group
  int32_t n_sequences_ = 0;                        // created so far
};

}  // namespace stagecoach
