// Grows while something long gets on, in whatever unit comes to hand: who watches needs to see
// movement, not how much.
#pragma once

#include <atomic>
#include <cstdint>

namespace stagecoach {

using WorkCounter = std::atomic<uint64_t>;

}  // namespace stagecoach
