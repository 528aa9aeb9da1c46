// A LoRA adapter as peft saves it, to be merged into its base model while that is read:
// W + B A scale, with scale = alpha / r, or alpha / sqrt(r) where it is rank-stabilised.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/loader/checkpoint_files.h"
#include "worker/loader/stored_rows.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {

// What is added to one tensor [rows, cols].
struct LoraPair {
  PlacedTensor a;  // [r, cols]
  PlacedTensor b;  // [rows, r]
  float scale = 0;
};

class LoraAdapter {
 public:
  // `dir` holds adapter_config.json, and adapter_model.safetensors or .bin unless `files` (the
  // checkpoint itself) holds the adapter's tensors. INVALID_ARGUMENT and UNIMPLEMENTED list all
  // that is wrong or cannot be merged: other kinds than plain LoRA are named.
  static absl::StatusOr<LoraAdapter> Open(const std::string& dir, CheckpointFiles& files);

  // The pair for a request, by any spelling of its name; null where the adapter leaves it alone.
  const LoraPair* Find(const TensorRequest& request) const;
  // What does not fit: pairs of another shape; with `is_whole_model` also those for which the model
  // has no tensor.
  std::vector<std::string> Problems(std::span<const TensorRequest> requests,
                                    bool is_whole_model) const;

 private:
  friend class LoraReader;
  std::string source_;
  std::map<std::string, LoraPair, std::less<>> pairs_;  // by module, without "base_model.model."
};

// `base` with the adapter's pairs merged in, in float32. `base` has the same requests.
std::unique_ptr<WeightSource> MergeAdapter(std::unique_ptr<WeightSource> base, LoraAdapter adapter,
                                           std::span<const TensorRequest> requests);

}  // namespace stagecoach::worker
