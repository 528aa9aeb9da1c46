// Flags of a worker that the launcher passes on to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach {

class FlagTable;

// For links between stages on GPUs.
struct TransportFlags {
  std::string transport = "auto";  // or "host": never directly between devices
  std::string nccl_library;        // empty: the system's libnccl.so.2
  std::string nccl_interface;  // network interface, as in NCCL_SOCKET_IFNAME; empty: NCCL decides
  std::vector<std::string> nccl_settings;  // "NAME=VALUE", NCCL environment variables
  int32_t link_timeout_s = 20;
};

struct WorkerFlags {
  bool batch_invariant = false;  // for GPUs; CPUs always are batch-invariant
  TransportFlags transport;
  // For GPUs. Tests use it to randomize the timing of concurrent work; 0: off.
  uint64_t disturbance_seed = 0;
  uint64_t reserved_bytes = 0;  // of a GPU's memory, left to other processes
  std::string tuning_folder;    // for GPUs; empty: the user's; "off": none
};

void DeclareWorkerFlags(FlagTable& table, WorkerFlags& flags);

}  // namespace stagecoach
