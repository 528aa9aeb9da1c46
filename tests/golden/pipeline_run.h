// A pipeline of StageModels in one process: hidden states are handed from stage to stage, blocks
// come in random order.
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
  bool dummy_weights = false;
  int32_t max_batched_tokens = 512;
  int32_t max_model_len = 512;  // tokens
  uint64_t n_blocks = 256;      // of each KV group
};

struct TestSequence {
  int32_t slot = 0;
  std::vector<int32_t> ids;
  int32_t n_done = 0;                        // tokens whose keys and values are in the cache
  std::vector<std::vector<int32_t>> blocks;  // by KV group
};

class PipelineRun {
 public:
  static absl::StatusOr<std::unique_ptr<PipelineRun>> Load(const PipelineOptions& options,
                                                           kernels::Ops* ops);

  // At most kMaxSequences may be in use at once.
  TestSequence NewSequence(std::vector<int32_t> ids);
  static constexpr int32_t kMaxSequences = 64;

  struct Chunk {
    TestSequence* sequence;
    int32_t n_tokens;  // of its ids, from n_done on
  };
  // One step over all stages. logit_rows: as Forward of the last stage has them.
  void Step(std::span<const Chunk> chunks, worker::LogitRows logit_rows = std::nullopt);
  // Logits of the last step's rows (row: index over all chunks' tokens), one vector of the
  // vocabulary each.
  std::vector<std::vector<float>> Logits(std::span<const int32_t> rows);

  // Step by step, at most `chunk_tokens` at once: logits of every position of `sequence` from
  // n_done on.
  std::vector<std::vector<float>> Prefill(TestSequence* sequence, int32_t chunk_tokens);

  const ModelSpec& spec() const { return stages_.front()->spec(); }
  const worker::StageModel& stage(int32_t i) const { return *stages_[static_cast<size_t>(i)]; }

 private:
  explicit PipelineRun(kernels::Ops* ops) : ops_(ops) {}
  int32_t TakeBlock(size_t group);

  kernels::Ops* ops_;
  std::vector<std::unique_ptr<worker::StageModel>> stages_;
  std::vector<std::vector<int32_t>> free_blocks_;  // by KV group
  int32_t n_sequences_ = 0;                        // made so far
};

}  // namespace stagecoach
