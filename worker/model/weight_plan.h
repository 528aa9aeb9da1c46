// Which checkpoint tensor goes where in a stage's weights: pure bookkeeping, before anything is
// allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "worker/loader/weight_source.h"
#include "worker/model/weights.h"

namespace stagecoach::worker {

// Request `request` becomes rows [first_row, first_row + rows) of its target.
struct WeightPart {
  size_t request;
  int32_t first_row;
};

struct MatrixPlan {
  kernels::Matrix* target;
  int32_t rows = 0, cols = 0;
  std::vector<WeightPart> parts;
};

struct VectorPlan {
  kernels::Buffer* target;
  int32_t n = 0;
  std::vector<WeightPart> parts;
};

struct WeightPlan {
  std::vector<TensorRequest> requests;
  std::vector<MatrixPlan> matrices;
  std::vector<VectorPlan> vectors;
};

// The targets are members of `weights`, whose layers are created here.
WeightPlan PlanWeights(const StageModelOptions& options, const ModelSpec& spec,
                       StageWeights* weights);

}  // namespace stagecoach::worker
