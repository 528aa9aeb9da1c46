// Maps checkpoint tensors to a stage's weights. Pure bookkeeping, before any allocation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "worker/loader/weight_source.h"
#include "worker/model/weights.h"

namespace stagecoach::worker {

// Request `request` fills rows of the target from first_row on.
struct WeightPart {
  size_t request;
  int32_t first_row;
  // Only these rows of the request, transposed or not. n_rows 0: all rows, as they are.
  int32_t from_row = 0, n_rows = 0;
  bool transposed = false;
};

struct MatrixPlan {
  kernels::Matrix* target;
  int32_t rows = 0, cols = 0;
  std::vector<WeightPart> parts;
  bool is_expert = false;  // of a layer that routes tokens
};

struct VectorPlan {
  kernels::Buffer* target;
  int32_t n = 0;
  std::vector<WeightPart> parts;
  float factor = 1;  // of the stored values; without parts, the value of all elements
};

struct WeightPlan {
  std::vector<TensorRequest> requests;
  std::vector<MatrixPlan> matrices;
  std::vector<VectorPlan> vectors;
};

// The targets are members of `weights`. This call creates its layers.
WeightPlan PlanWeights(const StageModelOptions& options, const ModelSpec& spec,
                       StageWeights* weights);

}  // namespace stagecoach::worker
