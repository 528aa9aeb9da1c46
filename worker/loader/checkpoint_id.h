// Tells checkpoints apart without reading all of their weights.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {

// Returns 32 bytes that are the same for copies of a checkpoint with the same adapter, and differ
// between checkpoints: SHA-256 over config.json, and over the name, type and shape of each tensor
// and samples of its values, and over what `options` changes of the weights. Another training
// changes almost every value, so samples suffice. An edit of a few values may go unnoticed.
// has_weights: false if the weights are made up (--load-format dummy). Errors as of
// CheckpointFiles::Open.
absl::StatusOr<std::string> CheckpointId(const CheckpointOptions& options, bool has_weights);

// As CheckpointId, but of a range of layers, and of the weights that belong to none: it reads
// little after these layers were loaded.
absl::StatusOr<std::string> LayersId(const CheckpointOptions& options, bool has_weights,
                                     uint32_t first_layer, uint32_t n_layers);

}  // namespace stagecoach::worker
