// What a store keeps values for.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stagecoach::worker {

struct KvKey {
  // Names the model, its numerics, the block's tokens and all tokens before them.
  std::array<uint8_t, 16> block;
  uint32_t layer;  // of the model, whichever stage has it

  bool operator==(const KvKey&) const = default;
};

// The block as 32 hexadecimal digits.
std::string HexBlock(const KvKey& key);
// The block, `between` and the layer: how a store names the value.
std::string KvKeyText(const KvKey& key, char between);
// Absent: KvKeyText writes no such text.
std::optional<KvKey> ParseKvKey(std::string_view text, char between);
// The block of such digits, in lower case; absent: the text is something else.
std::optional<std::array<uint8_t, 16>> ParseHexBlock(std::string_view hex);

}  // namespace stagecoach::worker
