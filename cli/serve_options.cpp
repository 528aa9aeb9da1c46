#include "cli/serve_options.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "common/flags/checks.h"
#include "common/numa.h"

namespace stagecoach::cli {

void AddStageFlags(CLI::App& app, launch::ClusterOptions& options) {
  for (const NumaNode& node : NumaNodes()) options.numa_nodes.push_back(node.id);
  app.add_option("--stages", options.n_stages,
                 "Pipeline stages: the model's layers are split over this many worker processes")
      ->type_name("N")
      ->check(Between(1, 256))
      ->capture_default_str();
  app.add_option("--device", options.device,
                 "What the workers compute on: cpu, or cuda, a GPU each")
      ->type_name("DEVICE")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option(
         "--devices", options.devices,
         "GPUs of the stages by CUDA's count, such as 0,1,4 (default: stage 0 has GPU 0 ...)")
      ->type_name("N,N...")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag(
      "--batch-invariant", options.batch_invariant,
      "On GPUs: a request's tokens do not depend on what runs beside it, on prefill chunks or "
      "on the number of stages, as on CPUs; slower");
  app.add_option("--transport", options.transport,
                 "Between stages on GPUs: auto (NCCL where all stages have it), or host, which is "
                 "slower")
      ->check(CLI::IsMember({"auto", "host"}))
      ->capture_default_str();
  app.add_option("--nccl-library", options.nccl_library,
                 "NCCL's library (default: libnccl.so.2 where the system finds it)")
      ->type_name("FILE");
  app.add_option("--nccl-interface", options.nccl_interface,
                 "Network interface that NCCL uses, such as eth0 (default: its own choice)")
      ->type_name("NAME");
  app.add_option("--nccl-setting", options.nccl_settings,
                 "A setting of NCCL, NCCL_NAME=VALUE; can be given again")
      ->type_name("SETTING")
      ->allow_extra_args(false);
  app.add_option("--link-timeout", options.link_timeout_s,
                 "Seconds that no step takes a stage on a GPU: without progress between stages for "
                 "as long as it takes all of them, and two more, the pipeline ends")
      ->type_name("N")
      ->check(Between(1, 3600))
      ->capture_default_str();
  app.add_option("--threads-per-worker", options.threads_per_worker,
                 "Compute threads of each worker (default: the cores shared out; all of them where "
                 "there are "
                 "fewer than four a stage)")
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
