// The order of a head's rows in checkpoints for a rotation of neighbouring values.
#pragma once

#include <cstdint>

namespace stagecoach::worker {

// The model's order pairs value i of a head with value i + head / 2. These checkpoints have the two
// side by side: 0, head / 2, 1, head / 2 + 1, ... of the model's order. Returns the place in the
// checkpoint of the model's row `row`.
constexpr int64_t InterleavedRow(int64_t row, int64_t head) {
  const int64_t within = row % head, half = head / 2;
  return row - within + within % half * 2 + within / half;
}

}  // namespace stagecoach::worker
