// The launcher's own flags, for `serve` and for `generate --model`.
#pragma once

#include "deploy/launch/cluster.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace stagecoach::cli {

// Adds --stages, --device and --threads-per-worker.
void AddStageFlags(CLI::App& app, launch::ClusterOptions& options);

// The folder of this program, where worker and router are as well.
std::string ProgramDir();

}  // namespace stagecoach::cli
