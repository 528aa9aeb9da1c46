// Starts a cluster after checking the model, so that problems are reported before any process
// starts.
#pragma once

#include "absl/status/statusor.h"
#include "cli/launch/cluster.h"

namespace stagecoach::cli {

// Calls Cluster::Start after a check of the model that takes milliseconds: config, tensor headers,
// template and, if it is small, the tokenizer. A large tokenizer takes seconds to read, and the
// router reads it anyway; it is checked only if the start fails. If the model cannot be served, the
// error's message is the whole report.
absl::StatusOr<launch::Endpoints> CheckedStart(launch::Cluster& cluster,
                                               const launch::ClusterOptions& options);

}  // namespace stagecoach::cli
