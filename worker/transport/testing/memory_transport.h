// Stages in one process: what tests run a pipeline over.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "worker/transport/transport.h"

namespace stagecoach::worker {

struct MemoryTransportOptions {
  size_t queue_frames = 8;  // a channel
  std::chrono::milliseconds join_timeout{30'000};
};

// One transport a stage, in order. Join them from different threads: each waits for all others.
std::vector<std::unique_ptr<Transport>> MakeMemoryTransports(
    int32_t n_stages, const MemoryTransportOptions& options = {});

}  // namespace stagecoach::worker
