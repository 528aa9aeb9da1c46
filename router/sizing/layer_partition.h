// Divides a row of layers into contiguous ranges, one per stage.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/functional/function_ref.h"

namespace stagecoach::router {

struct LayerRange {
  int32_t first = 0;
  int32_t count = 0;  // at least 1
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// The cost of a range on a stage; kCannotHold if the stage has no room for it.
using RangeCost = absl::FunctionRef<double(int32_t stage, const LayerRange& range)>;
inline constexpr double kCannotHold = std::numeric_limits<double>::infinity();

// The ranges that minimize the cost of the most expensive stage and, among those, the sum of the
// squared costs, which makes them even. Empty: some layers fit on no stage. Dynamic programming
// over stages and layers: O(n_stages * n_layers^2) calls of `cost`, twice.
// REQUIRES: n_stages <= n_layers.
std::vector<LayerRange> PartitionLayers(int32_t n_layers, int32_t n_stages, RangeCost cost);

}  // namespace stagecoach::router
