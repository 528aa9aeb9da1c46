// Assigns layers to stages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"

namespace stagecoach::router {

struct LayerRange {
  int32_t first = 0;
  int32_t count = 0;  // at least 1
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Contiguous ranges that minimize the cost of the most expensive stage and, among those, the most
// even ones. The cost of a layer is the weights that it reads. The last stage also computes logits,
// but only for rows that sample. The embedding is a lookup and costs nothing. INVALID_ARGUMENT if
// there are more stages than layers.
absl::StatusOr<std::vector<LayerRange>> BalanceLayers(const ModelSpec& spec, int32_t n_stages);

// The ranges of a user's --layer-split. INVALID_ARGUMENT if it does not fit the stages or the
// model.
absl::StatusOr<std::vector<LayerRange>> SplitLayers(std::span<const uint32_t> layers_by_stage,
                                                    const ModelSpec& spec, int32_t n_stages);

}  // namespace stagecoach::router
