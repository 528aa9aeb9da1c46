// Tensors of a checkpoint that the model does not ask for: harmless, or a sign that it would be
// computed wrongly.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "worker/loader/tensor_problems.h"

namespace stagecoach::worker {

struct UnexpectedTensors {
  TensorProblems problems;  // layers beyond the config's, biases and norms that it turns off
  TensorProblems notes;     // others
};

// `names`: all of the checkpoint; `used`: those that were found for the model's requests. Tensors
// of a LoRA adapter are left out: they are their own problem.
UnexpectedTensors JudgeUnexpected(const ModelSpec& spec, const std::vector<std::string>& names,
                                  const std::set<std::string>& used);

}  // namespace stagecoach::worker
