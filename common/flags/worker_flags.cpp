#include "common/flags/worker_flags.h"

#include "common/flags/checks.h"
#include "common/flags/flag_table.h"

namespace stagecoach {
namespace {

void DeclareTransportFlags(FlagTable& table, TransportFlags& flags) {
  table
      .Add("--transport", flags.transport,
           "Transport between stages on GPUs: auto (NCCL if all stages have it, else host), "
           "or host, which is slower")
      ->check(CLI::IsMember({"auto", "host"}))
      ->capture_default_str();
  table
      .Add("--nccl-library", flags.nccl_library,
           "Path of NCCL's library (default: libnccl.so.2 on the system's search path)")
      ->type_name("FILE");
  table
      .Add("--nccl-interface", flags.nccl_interface,
           "Network interface for NCCL, such as eth0 (default: NCCL chooses)")
      ->type_name("NAME");
  table
      .Add("--nccl-setting", flags.nccl_settings,
           "Setting of NCCL in the form NCCL_NAME=VALUE. Can be given several times")
      ->type_name("SETTING");
  table
      .Add("--link-timeout", flags.link_timeout_s,
           "On GPUs: longest time in seconds that one step takes on one stage. If a link "
           "between stages makes no progress for this time multiplied by the number of "
           "stages plus two, the pipeline ends. Raise it if steps are slower")
      ->type_name("N")
      ->check(Between(1, 3600))
      ->capture_default_str();
}

}  // namespace

void DeclareWorkerFlags(FlagTable& table, WorkerFlags& flags) {
  table.AddPresence(
      "--batch-invariant", flags.batch_invariant,
      "On GPUs: a request's tokens do not depend on other requests, prefill chunks or the "
      "number of stages. Slower. On CPUs this always holds");
  DeclareTransportFlags(table, flags.transport);
  table.AddSize("--reserve-memory", flags.reserved_bytes,
                "On GPUs: memory that the KV cache leaves to other processes, such as 2GiB; more "
                "than what --memory-fraction leaves");
  table
      .Add("--tuning-cache", flags.tuning_folder,
           "On GPUs: folder that keeps what autotuning has found, so that later starts are faster "
           "(default: stagecoach in $XDG_CACHE_HOME or ~/.cache); \"off\": every start tunes")
      ->type_name("FOLDER");
  table
      .Add("--disturb", flags.disturbance_seed,
           "For tests on a GPU: seed of random delays on every stream; unwritten memory, KV "
           "blocks and link slots are filled with NaN. 0: off")
      ->type_name("SEED")
      ->check(ZeroOrMore())
      ->capture_default_str();
}

}  // namespace stagecoach
