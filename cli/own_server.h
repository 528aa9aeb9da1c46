// The server of one command: the one the user names, or a cluster just for it.
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

struct ServerChoice {
  Connection connection;           // used when cluster.model is empty
  launch::ClusterOptions cluster;  // quiet, on free ports
  ServerChoice();
};

// --server with what belongs to it, or --model with the launcher's flags.
void AddServerFlags(CLI::App& app, ServerChoice& choice);

// Calls `use` with what to connect to. A cluster ends with it; interrupted, its processes go down
// with this one.
absl::Status WithServer(const ServerChoice& choice,
                        const std::function<absl::Status(const Connection& connection)>& use);

}  // namespace stagecoach::cli
