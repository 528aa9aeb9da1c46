// A cluster's start, with the model's problems told before any process is there to meet them.
#pragma once

#include "absl/status/statusor.h"
#include "cli/launch/cluster.h"

namespace stagecoach::cli {

// Cluster::Start, after a look at all of the model that takes milliseconds: config, tensors'
// headers, template, a small tokenizer. A large one takes seconds and is read by the router anyway:
// it is looked at when there is another problem, or when the start has failed. The message of a
// model that cannot be served is its whole report.
absl::StatusOr<launch::Endpoints> CheckedStart(launch::Cluster& cluster,
                                               const launch::ClusterOptions& options);

}  // namespace stagecoach::cli
