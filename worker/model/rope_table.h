// cos and sin for every position and frequency of a RopeSpec.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/model_spec.h"

namespace stagecoach::worker {

// Number of values of a head, from its start, that are rotated.
int32_t RotaryDim(const RopeSpec& rope, int32_t head_dim);

// Angle per position, in radians, for each frequency: theta^(-2i / rotary_dim), scaled like in
// transformers' modeling_rope_utils. YaRN: B. Peng et al., 2023; LongRoPE: Y. Ding et al., 2024.
// n_positions: the maximum length of a sequence, which selects LongRoPE's factors.
std::vector<double> RopeFrequencies(const RopeSpec& rope, int32_t head_dim, int32_t n_positions);

struct HostRopeTable {
  int32_t rotary_dim = 0;
  std::vector<float> cos, sin;  // [n_positions, rotary_dim / 2]
};
HostRopeTable MakeRopeTable(const RopeSpec& rope, int32_t head_dim, int32_t n_positions);

}  // namespace stagecoach::worker
