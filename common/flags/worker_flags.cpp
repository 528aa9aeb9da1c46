#include "common/flags/worker_flags.h"

#include "common/flags/checks.h"
#include "common/flags/flag_table.h"

namespace stagecoach {
namespace {

void DeclareTransportFlags(FlagTable& table, TransportFlags& flags) {
  table
      .Add("--transport", flags.transport,
           "Transport between stages on GPUs. auto: NCCL if all stages have it, else host; host: "
           "through host memory, which is slower")
      ->check(CLI::IsMember({"auto", "host"}))
      ->capture_default_str();
  table
      .Add("--nccl-library", flags.nccl_library,
           "Path of the NCCL library (default: libnccl.so.2 on the system's search path)")
      ->type_name("FILE");
  table
      .Add("--nccl-interface", flags.nccl_interface,
           "Network interface for NCCL, such as eth0 (default: NCCL chooses)")
      ->type_name("NAME");
  table
      .Add("--nccl-setting", flags.nccl_settings,
           "Setting of NCCL, in the form NCCL_NAME=VALUE. Can be given several times")
      ->type_name("SETTING");
  table
      .Add("--link-timeout", flags.link_timeout_s,
           "On GPUs: longest time in seconds that a step takes on a stage. The pipeline ends if a "
           "link between stages makes no progress for this time multiplied by the number of stages "
           "plus two. Raise it if your steps are slower")
      ->type_name("N")
      ->check(Between(1, 3600))
      ->capture_default_str();
}

}  // namespace

void DeclareWorkerFlags(FlagTable& table, WorkerFlags& flags) {
  table.AddPresence(
      "--batch-invariant", flags.batch_invariant,
      "On GPUs: compute the same tokens for a request whatever the other requests, the prefill "
      "chunks and the number of stages are. This is slower. CPUs always do this");
  DeclareTransportFlags(table, flags.transport);
  table.AddSize("--reserve-memory", flags.reserved_bytes,
                "On GPUs: memory to leave to other processes, such as 2GiB. It comes on top of "
                "what --memory-fraction leaves");
  table
      .Add("--tuning-cache", flags.tuning_folder,
           "On GPUs: folder for the results of autotuning. Later starts are then faster (default: "
           "stagecoach in $XDG_CACHE_HOME or ~/.cache). \"off\": every start tunes again")
      ->type_name("FOLDER");
  table
      .Add("--disturb", flags.disturbance_seed,
           "For tests on a GPU: seed of random delays on every stream. Unwritten memory, KV blocks "
           "and link slots are filled with NaN. 0: off")
      ->type_name("SEED")
      ->check(ZeroOrMore())
      ->capture_default_str();
}

}  // namespace stagecoach
