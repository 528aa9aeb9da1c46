// The numbers of a ModelReport.
#pragma once

#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "deploy/check/model_report.h"
#include "worker/model/weight_plan.h"

namespace stagecoach::check {

// The tensors of the whole model. `weights` receives the plan's targets and must outlive it.
worker::WeightPlan PlanWholeModel(const ModelSpec& spec, worker::StageWeights* weights);

// `stored_dtypes`: by request of PlanWholeModel; empty where the tensors could not be read, then
// config.json's word counts. INVALID_ARGUMENT when there are more stages than layers.
absl::StatusOr<ModelFacts> DescribeModel(const ModelSpec& spec, std::optional<DType> dtype,
                                         std::span<const DType> stored_dtypes, int32_t n_stages);

}  // namespace stagecoach::check
