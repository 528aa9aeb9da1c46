// How a worker talks to its neighbours.
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
  std::string transport = "auto";  // or "host": never from device to device
  std::string nccl_library;        // empty: libnccl.so.2 where the system finds it
  std::string nccl_interface;  // of the network, as NCCL_SOCKET_IFNAME takes it; empty: its choice
  std::vector<std::string> nccl_settings;  // "NAME=VALUE", of NCCL's environment variables
  int32_t link_timeout_s = 20;
  uint64_t disturbance_seed = 0;  // for tests; 0: off
};

// Into the environment, before CUDA and NCCL read it. INVALID_ARGUMENT names the setting.
absl::Status ApplyTransportFlags(const TransportFlags& flags);

// Over `host`, which outlives it; null: `host` itself is all there is.
std::unique_ptr<Transport> MakeDeviceTransport(const TransportFlags& flags, const kernels::Ops& ops,
                                               Transport* host);

}  // namespace stagecoach::worker
