// Checks a whole checkpoint from its index and headers, before any large allocation.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {

struct CheckpointVerdict {
  std::string source;                 // the index or the only file; empty: neither exists
  std::vector<std::string> problems;  // why the model cannot be served correctly, and the fix
  std::vector<std::string> notes;     // ignored tensors, and why ignoring them is right
  uint64_t n_parameters = 0;          // of all requested tensors
  bool ok() const { return problems.empty(); }
};

// `requests`: all tensors of the model (PlanWeights over all layers, as first and last stage).
// Opens every file that holds one of them and reads its header. Of the data, it reads at most the
// first part of a tied lm_head. Layers with the same problem share one line.
CheckpointVerdict CheckCheckpoint(const CheckpointOptions& options, const ModelSpec& spec,
                                  std::span<const TensorRequest> requests);

// Checks tensor names only. A stage that reads just its own layers uses it to refuse checkpoints
// for which the whole model would compute wrong results. `requests`: as above. INVALID_ARGUMENT
// lists the problems of unexpected_tensors.h.
absl::Status CheckNames(const CheckpointOptions& options, const ModelSpec& spec,
                        std::span<const TensorRequest> requests);

}  // namespace stagecoach::worker
