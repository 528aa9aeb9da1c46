// Which layers each stage gets.
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

// Contiguous ranges with the smallest cost of the most expensive stage and, among those, the most
// even ones. A layer costs the weights that it reads; the last stage also takes logits, for the
// rows that sample only. The embedding is a lookup and costs nothing. INVALID_ARGUMENT when there
// are more stages than layers.
absl::StatusOr<std::vector<LayerRange>> BalanceLayers(const ModelSpec& spec, int32_t n_stages);

// The ranges of a user's --layer-split. INVALID_ARGUMENT when it does not fit the stages or the
// model.
absl::StatusOr<std::vector<LayerRange>> SplitLayers(std::span<const uint32_t> layers_by_stage,
                                                    const ModelSpec& spec, int32_t n_stages);

}  // namespace stagecoach::router
