// Tensors of a checkpoint that the model does not request. They are either harmless or a sign that
// the model would be computed wrongly.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "worker/loader/tensor_problems.h"

namespace stagecoach::worker {

struct UnexpectedTensors {
  TensorProblems problems;  // extra layers; biases and norms that are off
  TensorProblems notes;     // all others
};

// `names`: all tensors of the checkpoint. `used`: those found for the model's requests. Tensors of
// a LoRA adapter are skipped here, because they are reported separately.
UnexpectedTensors JudgeUnexpected(const ModelSpec& spec, const std::vector<std::string>& names,
                                  const std::set<std::string>& used);

}  // namespace stagecoach::worker
