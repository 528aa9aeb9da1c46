// A counter that grows while a long operation makes progress, in any convenient unit. A watchdog
// only checks that the value changes.
#pragma once

#include <atomic>
#include <cstdint>

namespace stagecoach {

using WorkCounter = std::atomic<uint64_t>;

}  // namespace stagecoach
