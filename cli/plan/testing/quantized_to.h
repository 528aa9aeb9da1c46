// What --quantize makes of a model, for tests.
#pragma once

#include <optional>
#include <vector>

#include "cli/check/model_facts.h"
#include "common/encoding/encode_rows.h"

namespace stagecoach::plan {

// For DescribeModel. Empty without a code.
inline std::vector<check::Storage> QuantizedTo(std::optional<Code> code, const ModelSpec& spec) {
  if (!code) return {};
  worker::StageWeights targets;
  const worker::WeightPlan plan = check::PlanWholeModel(spec, &targets);
  std::vector<check::Storage> stored;
  for (const worker::TensorRequest& request : plan.requests) {
    stored.push_back({.dtype = spec.stored_dtype, .encoding = std::nullopt});
    if (!request.is_linear) continue;
    stored.back().encoding =
        EncodingFor(*code, spec.stored_dtype, static_cast<size_t>(request.cols));
  }
  return stored;
}

}  // namespace stagecoach::plan
