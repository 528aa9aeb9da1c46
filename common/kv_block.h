// Blocks of the KV cache, as router, stages and kernels count them.
#pragma once

#include <cstdint>
#include <limits>

namespace stagecoach {

inline constexpr int32_t kKvBlockTokens = 16;

// Of one KV group: a token's place in its pool, block * kKvBlockTokens + offset, is an int32.
inline constexpr uint64_t kMaxKvBlocks = std::numeric_limits<int32_t>::max() / kKvBlockTokens;

}  // namespace stagecoach
