// cos and sin of every position and frequency of a RopeSpec.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/model_spec.h"

namespace stagecoach::worker {

// Rotations a token, by frequency: theta^(-2i / head_dim), scaled as transformers'
// modeling_rope_utils does it.
std::vector<double> RopeFrequencies(const RopeSpec& rope, int32_t head_dim);

struct HostRopeTable {
  std::vector<float> cos, sin;  // [n_positions, head_dim / 2]
};
HostRopeTable MakeRopeTable(const RopeSpec& rope, int32_t head_dim, int32_t n_positions);

}  // namespace stagecoach::worker
