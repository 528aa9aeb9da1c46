// Assigns layers to stages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "router/sizing/layer_partition.h"

namespace stagecoach::router {

// The number of weights in a layer that a step reads and multiplies. A full batch reads all
// experts.
double LayerCost(const ModelSpec& spec, const LayerSpec& layer);
// The weights of the output head, times the share of rows that need logits.
double LogitsCost(const ModelSpec& spec);
// [i]: LayerCost of layers 0 to i-1 together.
std::vector<double> CostBefore(const ModelSpec& spec);

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
