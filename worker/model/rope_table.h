// cos and sin of every position and frequency of a RopeSpec.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/model_spec.h"

namespace stagecoach::worker {

// Values of a head, from its start, that rotate.
int32_t RotaryDim(const RopeSpec& rope, int32_t head_dim);

// Rotations a token, by frequency: theta^(-2i / rotary_dim), scaled as transformers'
// modeling_rope_utils does it; YaRN: B. Peng et al., 2023; LongRoPE: Y. Ding et al., 2024.
// n_positions: the most that a sequence may have, which decides LongRoPE's factors.
std::vector<double> RopeFrequencies(const RopeSpec& rope, int32_t head_dim, int32_t n_positions);

struct HostRopeTable {
  int32_t rotary_dim = 0;
  std::vector<float> cos, sin;  // [n_positions, rotary_dim / 2]
};
HostRopeTable MakeRopeTable(const RopeSpec& rope, int32_t head_dim, int32_t n_positions);

}  // namespace stagecoach::worker
