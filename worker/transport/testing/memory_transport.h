// Connects stages in one process. Tests run pipelines over it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "worker/transport/transport.h"

namespace stagecoach::worker {

struct MemoryTransportOptions {
  size_t queue_frames = 8;  // per channel
  std::chrono::milliseconds join_timeout{30'000};
  // Called by each Join from when on a Close ends it. Must not call the transports.
  std::function<void()> on_joining{};
};

// Makes one transport per stage, in order. Join them from different threads, because each waits for
// all others.
std::vector<std::unique_ptr<Transport>> MakeMemoryTransports(
    int32_t n_stages, const MemoryTransportOptions& options = {});

}  // namespace stagecoach::worker
