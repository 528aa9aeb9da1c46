// A LoRA adapter in peft's format, merged into its base model while the weights are read: W + B A
// scale. scale is alpha / r, or alpha / sqrt(r) for a rank-stabilised adapter.
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

// The update of one tensor [rows, cols].
struct LoraPair {
  PlacedTensor a;  // [r, cols]
  PlacedTensor b;  // [rows, r]
  float scale = 0;
};

class LoraAdapter {
 public:
  // `dir` has adapter_config.json, and adapter_model.safetensors or .bin unless `files` (the
  // checkpoint itself) holds the adapter's tensors. INVALID_ARGUMENT and UNIMPLEMENTED list
  // everything that is wrong or cannot be merged, including adapter types other than plain LoRA.
  static absl::StatusOr<LoraAdapter> Open(const std::string& dir, CheckpointFiles& files);

  // Returns the pair for a request, under any spelling of its name. Null if the adapter does not
  // change the tensor.
  const LoraPair* Find(const TensorRequest& request) const;
  // Returns what does not fit: pairs with a wrong shape and, with `is_whole_model`, pairs for
  // tensors that the model does not have.
  std::vector<std::string> Problems(std::span<const TensorRequest> requests,
                                    bool is_whole_model) const;

 private:
  friend class LoraReader;
  std::string source_;
  std::map<std::string, LoraPair, std::less<>> pairs_;  // by module, without "base_model.model."
};

// Returns `base` with the adapter's pairs merged in, computed in float32. `requests` are those of
// `base`.
std::unique_ptr<WeightSource> MergeAdapter(std::unique_ptr<WeightSource> base, LoraAdapter adapter,
                                           std::span<const TensorRequest> requests);

}  // namespace stagecoach::worker
