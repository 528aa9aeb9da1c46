// How busy the stages of a pipeline are.
#pragma once

#include <functional>
#include <optional>
#include <vector>

namespace stagecoach {

// Compute time of each stage since the epoch's start, in milliseconds; absent if unknown. Blocks
// for at most about 0.1 s. Thread-safe.
using StageLoads = std::function<std::vector<std::optional<double>>()>;

}  // namespace stagecoach
