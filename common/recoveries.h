// The latest losses of stages that pipelines recovered from, for people who watch them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace stagecoach {

struct Recovery {
  size_t replica = 0;           // number of the pipeline
  std::optional<size_t> stage;  // the lost one; absent: not known
  std::string reason;           // the loss in words
  std::chrono::system_clock::time_point began;
  std::chrono::duration<double> lasted{};  // so far, if there is a phase
  std::string phase;                       // "wait", "load" or "join"; empty: it is over
  bool kv_kept = false;                    // nothing was computed again; known when it is over
};

// Oldest first; one that is not over comes last among those of its pipeline. Thread-safe, never
// blocks.
using Recoveries = std::function<std::vector<Recovery>()>;

}  // namespace stagecoach
