// The server that a command uses: one that is already running, or a cluster started for this
// command.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "cli/connection.h"
#include "cli/launch/cluster.h"

namespace CLI {
class App;
}

namespace stagecoach::cli {

// A cluster for one command: it does not echo logs, and listens on free ports.
launch::ClusterOptions OwnCluster();

struct ServerChoice {
  Connection connection;  // used if cluster.model is empty
  launch::ClusterOptions cluster = OwnCluster();
};

// Adds --server with its connection flags, or --model with the launcher's flags.
void AddServerFlags(CLI::App& app, ServerChoice& choice);

// Calls `use` with the connection. If a cluster was started, it is stopped afterwards; if this
// process is interrupted, the cluster's processes end with it.
absl::Status WithServer(const ServerChoice& choice,
                        const std::function<absl::Status(const Connection& connection)>& use);

}  // namespace stagecoach::cli
