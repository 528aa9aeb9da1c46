// Size and number of KV blocks, shared by router, stages and kernels.
#pragma once

#include <cstdint>
#include <limits>

namespace stagecoach {

inline constexpr int32_t kKvBlockTokens = 16;

// Largest number of blocks in one KV group. The position of a token in the group's pool, block *
// kKvBlockTokens + offset, must fit an int32.
inline constexpr uint64_t kMaxKvBlocks = std::numeric_limits<int32_t>::max() / kKvBlockTokens;

// Recurrent states are saved at least every so many tokens.
inline constexpr uint32_t kTokensPerState = 2048;

// Where a step that computes positions [start, end) of a sequence can save its recurrent state:
// after the last whole block that ends there. If it samples after a prompt, the block must end
// before the last position, if one does, because an equal prompt computes that position again. 0:
// no block ends there. Sequences begin with saved states behind whole blocks.
constexpr uint32_t SavedPosition(uint32_t start, uint32_t end, bool samples) {
  constexpr auto kTokens = static_cast<uint32_t>(kKvBlockTokens);
  const uint32_t before_last = (end - 1) / kTokens * kTokens;
  if (samples && before_last > start) return before_last;
  const uint32_t last = end / kTokens * kTokens;
  return last > start ? last : 0;
}

}  // namespace stagecoach
