// Judges a whole checkpoint from its index and headers, before any memory is taken.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {

struct CheckpointVerdict {
  std::string source;                 // the index or the only file; empty: there is none
  std::vector<std::string> problems;  // the model cannot be served, or not rightly; what to do
  std::vector<std::string> notes;     // tensors that are ignored, and why that is right
  uint64_t n_parameters = 0;          // of all requested tensors
  bool ok() const { return problems.empty(); }
};

// `requests`: all tensors of the model (PlanWeights over all layers, first and last stage). Opens
// every file that holds one and reads its header; of the data at most the first part of a tied
// lm_head. Layers with the same problem share a line.
CheckpointVerdict CheckCheckpoint(const CheckpointOptions& options, const ModelSpec& spec,
                                  std::span<const TensorRequest> requests);

// What the names alone tell: a stage that reads its own layers refuses with it what would make the
// whole model wrong. `requests`: as above. INVALID_ARGUMENT lists the problems of
// unexpected_tensors.h.
absl::Status CheckNames(const CheckpointOptions& options, const ModelSpec& spec,
                        std::span<const TensorRequest> requests);

}  // namespace stagecoach::worker
