// The numbers of a ModelReport.
#pragma once

#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "cli/check/model_report.h"
#include "common/gguf/gguf_types.h"
#include "common/model/model_spec.h"
#include "worker/model/weight_plan.h"

namespace stagecoach::check {

// The tensors of the whole model. `weights` receives the plan's targets and must outlive it.
worker::WeightPlan PlanWholeModel(const ModelSpec& spec, worker::StageWeights* weights);

// KV blocks of a sequence alone: behind a window the rest is freed, but for a block at either end.
uint64_t BlocksOfOneSequence(int32_t window, int32_t n_tokens);

// How a tensor is stored.
struct Storage {
  DType dtype;
  std::optional<gguf::TensorType> encoding;  // WeightSource::encoding()

  bool is_quantized() const;
};

// `stored`: by request of PlanWholeModel; empty where the tensors could not be read, then
// config.json's word counts. INVALID_ARGUMENT when there are more stages than layers.
absl::StatusOr<ModelFacts> DescribeModel(const ModelSpec& spec, std::optional<DType> dtype,
                                         std::span<const Storage> stored, int32_t n_stages);

}  // namespace stagecoach::check
