// What the local launcher starts, and with which flags.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/log_line.h"
#include "common/flags/serve_flags.h"
#include "common/flags/worker_flags.h"

namespace stagecoach::launch {

struct ClusterOptions {
  std::string program_dir;  // holds stagecoach-worker and stagecoach-router
  std::string model;
  uint32_t n_stages = 1;
  std::string device = "cpu";
  // GPU of each worker, replica by replica; empty: worker i uses GPU i.
  std::vector<uint32_t> devices;
  WorkerFlags worker;     // passed on to every worker
  uint32_t n_spares = 0;  // workers that wait for a place, per device
  // 0: an equal share of the cores; or, if there are fewer than four per stage, all cores of its
  // replica, which has an equal share of the machine's.
  uint32_t threads_per_worker = 0;
  // NUMA nodes of this machine. If the workers divide evenly among them, each worker runs on one
  // node.
  std::vector<int> numa_nodes;
  std::string log_level = "info";
  bool echo_logs = true;  // forward the children's logs to our standard error
  // Gets each line of the children's logs, on their reader threads. May be null.
  std::function<void(std::string_view)> on_child_line;
  ServeFlags serve;  // passed on to the router; the workers get `observation`

  uint32_t n_workers() const { return n_stages * serve.replicas; }
  LogFormat log_format() const {
    return serve.observation.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  }
  // Lost workers get a replacement, which finds their memory.
  bool replaces_workers() const { return serve.recovery_limit.count() > 0; }
};

}  // namespace stagecoach::launch
