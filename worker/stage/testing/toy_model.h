// A stage model for tests. It computes with small integers instead of floats, so every split into
// stages and chunks gives exactly the same result. It reads the history through the block tables,
// so a wrong block, position or token changes everything after it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "worker/model/stage_model.h"

namespace stagecoach::worker {

inline constexpr int32_t kToyLayers = 4;
inline constexpr int32_t kToyVocab = 61;
inline constexpr int32_t kToyHidden = 4;
inline constexpr int32_t kToyWindow = 24;  // of KV group 1, the odd layers

struct ToyModelOptions {
  int32_t first_layer = 0;
  int32_t n_layers = kToyLayers;
  int32_t max_batched_tokens = 64;
  int32_t max_logit_rows = 3;
  int32_t max_slots = 6;
  int32_t max_blocks = 16;  // per sequence
  bool embeds = false;      // has hidden states in place of logits
  // With bfloat16, rows travel as integers of 16 bits, so that tokens stay the same.
  v1::HiddenDType hidden_dtype = v1::HIDDEN_DTYPE_FLOAT32;
};

class ToyModel final : public StageModel {
 public:
  explicit ToyModel(const ToyModelOptions& options);

  const ModelSpec& spec() const override { return spec_; }
  uint64_t weights_bytes() const override { return 1000; }
  uint64_t scratch_bytes() const override { return hidden_.size() * sizeof(float); }
  std::vector<uint64_t> kv_block_bytes() const override;
  absl::Status AllocateKv(std::span<const uint64_t> n_blocks, const LastingMemory&) override;
  std::vector<KvPart> kv_parts() const override;
  void ExportKv(size_t part, std::span<const kernels::KvBlockCopy> copies, void* host,
                size_t place_bytes) override;
  void ImportKv(size_t part, std::span<const kernels::KvBlockCopy> copies, void* host,
                size_t place_bytes) override;
  absl::Status Prepare(const std::function<void(int32_t, int32_t)>&) override {
    return absl::OkStatus();
  }
  void Forward(const kernels::StepBatch& batch, float* hidden, LogitRows) override;
  float* Logits(const float* hidden, std::span<const int32_t> rows) override;
  const float* FinalHidden(const float* hidden, std::span<const int32_t> rows) override;
  int32_t max_logit_rows() const override {
    return options_.embeds ? options_.max_batched_tokens : options_.max_logit_rows;
  }
  float* hidden_buffer() override { return hidden_.data(); }
  void* passed_buffer() override {
    return passed_.empty() ? static_cast<void*>(hidden_.data()) : passed_.data();
  }
  int32_t* sampled_tokens() override { return step_->sampled; }

 private:
  void RunLayer(int32_t layer, float* hidden);

  const ToyModelOptions options_;
  ModelSpec spec_;
  std::unique_ptr<kernels::StepInputs> step_;
  std::vector<float> hidden_;           // [max_batched_tokens, kToyHidden]
  std::vector<uint16_t> passed_;        // [max_batched_tokens, kToyHidden]; empty: float32
  std::vector<float> logits_;           // [max_logit_rows, kToyVocab]
  std::vector<float> final_hidden_;     // [max_logit_rows, kToyHidden]
  std::vector<std::vector<float>> kv_;  // by layer: [blocks * 16, kToyHidden]; -1: not written
};

}  // namespace stagecoach::worker
