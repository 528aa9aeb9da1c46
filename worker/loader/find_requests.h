// Finds the tensors of a model in a checkpoint and describes what is wrong with them.
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
  std::vector<PlacedTensor> placed;  // by request; filled in only where no problem was found
  std::set<std::string> names;       // of all requests found, as in the files
  TensorProblems problems;           // about single tensors
  std::set<std::string> broken_files;
};

FoundRequests FindRequests(CheckpointFiles& files, std::span<const TensorRequest> requests);

// Says what to do about tensors of an adapter that was not merged.
std::string LoraProblem(const std::vector<std::string>& lora_names);

}  // namespace stagecoach::worker
