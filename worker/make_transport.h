// How a worker exchanges messages with its neighbour stages.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/flags/worker_flags.h"
#include "kernels/ops.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

// Sets environment variables. Call it before CUDA and NCCL read them. INVALID_ARGUMENT names the
// bad setting.
absl::Status ApplyTransportFlags(const TransportFlags& flags);

// Makes a transport between devices on top of `host`, which must outlive it. Returns null if all
// messages go through `host` itself.
std::unique_ptr<Transport> MakeDeviceTransport(const WorkerFlags& flags, const kernels::Ops& ops,
                                               Transport* host);

}  // namespace stagecoach::worker
