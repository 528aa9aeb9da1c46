// The server of one command: the one the user names, or a cluster just for it.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "cli/launch/cluster.h"

namespace CLI {
class App;
}

namespace stagecoach::cli {

struct ServerChoice {
  std::string server;              // HOST:PORT; used when cluster.model is empty
  launch::ClusterOptions cluster;  // quiet, on free ports
  ServerChoice();
};

// --server, or --model with the launcher's flags.
void AddServerFlags(CLI::App& app, ServerChoice& choice);

// Calls `use` with the address. A cluster ends with it; interrupted, its processes go down with
// this one.
absl::Status WithServer(const ServerChoice& choice,
                        const std::function<absl::Status(const std::string& address)>& use);

}  // namespace stagecoach::cli
