// The devices that a golden test runs on: each program has its own list.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace stagecoach {

struct Backend {
  std::string name;
  std::unique_ptr<kernels::Ops> ops;
  float tolerance;           // of logits and log-probabilities in float32, against transformers
  size_t model_stride = 1;   // 5: every fifth model only
  bool splits_alike = true;  // stages change no bit
};

std::vector<Backend> Backends();
// Those whose bits do not change with stages, chunks and neighbours, to be tested for it.
std::vector<Backend> SameBitsBackends();

}  // namespace stagecoach
