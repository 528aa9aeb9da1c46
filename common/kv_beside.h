// Limit of what the router lets stages copy beside a step.
#pragma once

#include <cstdint>

namespace stagecoach {

// The most blocks that a plan restores beside its rows (v1::KvRestore). A step of few rows takes
// about as long as to copy so many from host memory, and stages have device memory for them.
inline constexpr int32_t kMostBlocksBeside = 128;

}  // namespace stagecoach
