#include "cli/serve_options.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "common/flags/checks.h"
#include "common/numa.h"

namespace stagecoach::cli {

void AddStageFlags(CLI::App& app, launch::ClusterOptions& options) {
  for (const NumaNode& node : NumaNodes()) options.numa_nodes.push_back(node.id);
  app.add_option(
         "--stages", options.n_stages,
         "Pipeline stages: the number of worker processes over which the model's layers are split")
      ->type_name("N")
      ->check(Between(1, 256))
      ->capture_default_str();
  app.add_option("--device", options.device,
                 "Compute device of the workers: cpu, or cuda with one GPU per worker")
      ->type_name("DEVICE")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--devices", options.devices,
                 "CUDA device of each stage, such as 0,1,4 (default: stage 0 uses GPU 0, stage 1 "
                 "GPU 1, ...)")
      ->type_name("N,N...")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--batch-invariant", options.batch_invariant,
               "On GPUs: a request's tokens do not depend on other requests, prefill chunks or the "
               "number of stages. Slower. On CPUs this always holds");
  app.add_option("--transport", options.transport,
                 "Transport between stages on GPUs: auto (NCCL if all stages have it, else host), "
                 "or host, which is slower")
      ->check(CLI::IsMember({"auto", "host"}))
      ->capture_default_str();
  app.add_option("--nccl-library", options.nccl_library,
                 "Path of NCCL's library (default: libnccl.so.2 on the system's search path)")
      ->type_name("FILE");
  app.add_option("--nccl-interface", options.nccl_interface,
                 "Network interface for NCCL, such as eth0 (default: NCCL chooses)")
      ->type_name("NAME");
  app.add_option("--nccl-setting", options.nccl_settings,
                 "Setting of NCCL in the form NCCL_NAME=VALUE. Can be given several times")
      ->type_name("SETTING")
      ->allow_extra_args(false);
  app.add_option("--link-timeout", options.link_timeout_s,
                 "On GPUs: longest time in seconds that one step takes on one stage. If a link "
                 "between stages makes no progress for this time multiplied by the number of "
                 "stages plus two, the pipeline ends. Raise it if steps are slower")
      ->type_name("N")
      ->check(Between(1, 3600))
      ->capture_default_str();
  app.add_option("--threads-per-worker", options.threads_per_worker,
                 "Compute threads of each worker (default: an equal share of the cores; all cores "
                 "if there are fewer than four per stage)")
      ->type_name("N")
      ->check(MoreThanZero());
  app.add_option("--disturb", options.disturbance_seed)->group("");
}

std::optional<DType> ParseDTypeFlag(std::string_view text) {
  if (text == "float32") return DType::kF32;
  if (text == "bfloat16") return DType::kBF16;
  return std::nullopt;
}

std::string ProgramDir() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

}  // namespace stagecoach::cli
