#include "cli/serve_options.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "common/flags/checks.h"
#include "common/flags/flag_table.h"
#include "common/numa.h"

namespace stagecoach::cli {

void AddStageFlags(CLI::App& app, launch::ClusterOptions& options) {
  for (const NumaNode& node : NumaNodes()) options.numa_nodes.push_back(node.id);
  app.add_option(
         "--stages", options.n_stages,
         "Number of pipeline stages. Each is a worker process with a part of the model's layers")
      ->type_name("N")
      ->check(Between(1, 256))
      ->capture_default_str();
  app.add_option("--device", options.device,
                 "Device of the workers: cpu, or cuda with one GPU per worker")
      ->type_name("DEVICE")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--devices", options.devices,
                 "CUDA device of each stage, such as 0,1,4. With --replicas, give the devices of "
                 "the first replica, then those of the second, and so on (default: 0,1,2,...)")
      ->type_name("N,N...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(ZeroOrMore());
  FlagTable table(app);
  DeclareWorkerFlags(table, options.worker);
  app.get_option("--disturb")->group("");
  app.add_option("--threads-per-worker", options.threads_per_worker,
                 "Number of compute threads of each worker (default: an equal share of the "
                 "replica's cores; all of them if there are fewer than four per stage)")
      ->type_name("N")
      ->check(MoreThanZero());
}

std::string ProgramDir() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

}  // namespace stagecoach::cli
