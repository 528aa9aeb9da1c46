// Computes the numbers of a ModelReport.
#pragma once

#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "cli/check/model_report.h"
#include "common/encoding/encoding.h"
#include "common/model/model_spec.h"
#include "stagecoach/v1/load.pb.h"
#include "worker/model/weight_plan.h"

namespace stagecoach::check {

// Plans the tensors of the whole model. `weights` receives the plan's targets and must outlive the
// plan.
worker::WeightPlan PlanWholeModel(const ModelSpec& spec, worker::StageWeights* weights);

// Most KV blocks that one sequence of n_tokens holds at a time. With a sliding window, blocks that
// have left the window are freed; one extra block at each end of the window is counted.
uint64_t BlocksOfOneSequence(int32_t window, int32_t n_tokens);

// How a tensor is stored.
struct Storage {
  DType dtype;
  std::optional<Encoding> encoding;  // WeightSource::encoding()

  bool is_quantized() const;
};

// `stored`: one entry per request of PlanWholeModel, in that order. If it is empty because the
// tensors could not be read, what config.json says is used. on_gpus: only weights that stay
// quantized there keep their encoding. INVALID_ARGUMENT if there are more stages than layers.
absl::StatusOr<ModelFacts> DescribeModel(const ModelSpec& spec, const v1::LoadConfig& config,
                                         std::span<const Storage> stored, int32_t n_stages,
                                         bool on_gpus = false);

}  // namespace stagecoach::check
