#include "worker/kv_store/kv_key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>

namespace stagecoach::worker {

std::string HexBlock(const KvKey& key) { return fmt::format("{:02x}", fmt::join(key.block, "")); }

std::optional<std::array<uint8_t, 16>> ParseHexBlock(std::string_view hex) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<uint8_t, 16> block;
  if (hex.size() != 2 * block.size()) return std::nullopt;
  for (size_t i = 0; i < block.size(); ++i) {
    const size_t high = kDigits.find(hex[2 * i]), low = kDigits.find(hex[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    block[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return block;
}

}  // namespace stagecoach::worker
