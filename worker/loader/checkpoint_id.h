// Tells checkpoints apart without reading all of their weights.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace stagecoach::worker {

// Returns 32 bytes that are the same for copies of a checkpoint with the same adapter, and differ
// between checkpoints: SHA-256 over config.json, and over the name, type and shape of each tensor
// and samples of its values. Another training changes almost every value, so samples suffice. An
// edit of a few values may go unnoticed. model_path: a folder or a .gguf file. adapter_dir: of the
// LoRA adapter that is merged; empty: none. has_weights: false if the weights are made up
// (--load-format dummy). Errors as of CheckpointFiles::Open.
absl::StatusOr<std::string> CheckpointId(const std::string& model_path,
                                         const std::string& adapter_dir, bool has_weights);

}  // namespace stagecoach::worker
