// The devices that a golden test runs on: each program has its own list.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "tests/golden/golden_data.h"

namespace stagecoach {

struct Backend {
  std::string name;
  std::unique_ptr<kernels::Ops> ops;
  float tolerance;           // in float32, of logits and log-probabilities against transformers
  size_t model_stride = 1;   // 5: only every fifth model
  bool splits_alike = true;  // true: the number of stages changes no bit of the results
};

std::vector<Backend> Backends();
// Whether they can run the model.
bool BackendsCanRun(const GoldenModel& model);
// Backends whose results must be bit-identical for any stages, chunks and neighbours in the batch.
std::vector<Backend> SameBitsBackends();

}  // namespace stagecoach
