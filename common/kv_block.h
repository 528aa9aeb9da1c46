// Size and number of KV blocks, shared by router, stages and kernels.
#pragma once

#include <cstdint>
#include <limits>

namespace stagecoach {

inline constexpr int32_t kKvBlockTokens = 16;

// Largest number of blocks in one KV group. The position of a token in the group's pool, block *
// kKvBlockTokens + offset, must fit an int32.
inline constexpr uint64_t kMaxKvBlocks = std::numeric_limits<int32_t>::max() / kKvBlockTokens;

}  // namespace stagecoach
