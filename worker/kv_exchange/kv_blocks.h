// KV blocks as the tiers below the device know them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/kv_block.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

// A block, whatever stage holds which of its layers.
struct KvBlockName {
  std::array<uint8_t, 16> key{};  // KvKey::block
  std::array<int32_t, kKvBlockTokens> tokens{};
  uint64_t owner = 0;  // of a block to save: v1::KvSave's
};

// The name of the recurrent state at the end of this block. It differs from all names of blocks,
// because a disk has one file for each name.
inline KvBlockName OfState(KvBlockName block) {
  block.key.back() ^= 1;
  return block;
}

// What a stage holds of a block, or of a state.
inline uint64_t KvBlockBytes(const std::vector<KvPart>& parts) {
  uint64_t bytes = 0;
  for (const KvPart& part : parts) bytes += part.bytes;
  return bytes;
}

}  // namespace stagecoach::worker
