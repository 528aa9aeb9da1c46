#include "router/sizing/layer_partition.h"

#include <algorithm>

namespace stagecoach::router {

std::vector<LayerRange> PartitionLayers(int32_t n_layers, int32_t n_stages, RangeCost cost) {
  // The first pass minimizes the maximum; the second finds the most even split within it. The two
  // goals together have no optimal substructure.
  double limit = kCannotHold;
  std::vector<std::vector<int32_t>> begin_of;
  for (const bool even : {false, true}) {
    // best[s][l]: stages 0..s hold layers 0..l-1.
    std::vector<std::vector<double>> best(n_stages, std::vector<double>(n_layers + 1, kCannotHold));
    begin_of.assign(n_stages, std::vector<int32_t>(n_layers + 1, 0));
    for (int32_t s = 0; s < n_stages; ++s) {
      for (int32_t l = s + 1; l <= n_layers; ++l) {
        for (int32_t first = s == 0 ? 0 : s; first < (s == 0 ? 1 : l); ++first) {
          const double of_range = cost(s, {first, l - first});
          if (of_range == kCannotHold || of_range > limit) continue;
          const double before = s == 0 ? 0 : best[s - 1][first];
          const double total = even ? before + of_range * of_range : std::max(before, of_range);
          if (total < best[s][l]) {
            best[s][l] = total;
            begin_of[s][l] = first;
          }
        }
      }
    }
    if (best[n_stages - 1][n_layers] == kCannotHold) return {};
    if (!even) limit = best[n_stages - 1][n_layers];
  }
  std::vector<LayerRange> ranges(n_stages);
  int32_t end = n_layers;
  for (int32_t s = n_stages - 1; s >= 0; --s) {
    ranges[s] = {begin_of[s][end], end - begin_of[s][end]};
    end = ranges[s].first;
  }
  return ranges;
}

}  // namespace stagecoach::router
