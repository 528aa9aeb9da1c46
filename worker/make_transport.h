// How a worker exchanges messages with its neighbour stages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

struct TransportFlags {
  std::string transport = "auto";  // or "host": never directly between devices
  std::string nccl_library;        // empty: the system's libnccl.so.2
  std::string nccl_interface;  // network interface, as in NCCL_SOCKET_IFNAME; empty: NCCL decides
  std::vector<std::string> nccl_settings;  // "NAME=VALUE", NCCL environment variables
  int32_t link_timeout_s = 20;
  uint64_t disturbance_seed = 0;  // for tests; 0: off
};

// Sets environment variables. Call it before CUDA and NCCL read them. INVALID_ARGUMENT names the
// bad setting.
absl::Status ApplyTransportFlags(const TransportFlags& flags);

// Makes a transport between devices on top of `host`, which must outlive it. Returns null if all
// messages go through `host` itself.
std::unique_ptr<Transport> MakeDeviceTransport(const TransportFlags& flags, const kernels::Ops& ops,
                                               Transport* host);

}  // namespace stagecoach::worker
