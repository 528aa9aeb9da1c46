// Finds what the model asks for in a checkpoint, and says what is wrong with it.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "worker/loader/checkpoint_files.h"
#include "worker/loader/stored_rows.h"
#include "worker/loader/tensor_problems.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {

struct FoundRequests {
  std::vector<PlacedTensor> placed;  // by request; only those without a problem are filled in
  std::set<std::string> names;       // as the files have them, of all requests that were found
  TensorProblems problems;           // of single tensors
  std::set<std::string> broken_files;
};

FoundRequests FindRequests(CheckpointFiles& files, std::span<const TensorRequest> requests);

// What to do about tensors of an adapter that was not merged.
std::string LoraProblem(const std::vector<std::string>& lora_names);

}  // namespace stagecoach::worker
