// Names and arguments of the programs that the local launcher starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/launch/cluster_options.h"

namespace stagecoach::launch {

// "worker 1", or "replica 0 worker 1" if there are several replicas.
std::string WorkerName(const ClusterOptions& options, uint32_t worker);
// They begin with "--listen ADDRESS", where the port is 0.
std::vector<std::string> WorkerArgs(const ClusterOptions& options, uint32_t worker);
// A spare for a worker with these arguments: it learns its address when it gets a place.
std::vector<std::string> SpareArgs(const std::vector<std::string>& worker_args);
// `addresses`: of the workers, by replica and stage.
std::vector<std::string> RouterArgs(const ClusterOptions& options, const ServeFlags& given,
                                    const std::vector<std::string>& addresses);

}  // namespace stagecoach::launch
