#include "worker/kv_store/kv_key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstddef>
#include <system_error>

namespace stagecoach::worker {

std::string HexBlock(const KvKey& key) { return fmt::format("{:02x}", fmt::join(key.block, "")); }

std::string KvKeyText(const KvKey& key, char between) {
  return fmt::format("{}{}{}", HexBlock(key), between, key.layer);
}

std::optional<KvKey> ParseKvKey(std::string_view text, char between) {
  const std::string_view hex = text.substr(0, text.find(between));
  const std::optional<std::array<uint8_t, 16>> block = ParseHexBlock(hex);
  if (!block || hex.size() == text.size()) return std::nullopt;
  KvKey key{.block = *block, .layer = 0};
  const std::string_view digits = text.substr(hex.size() + 1);
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), key.layer);
  // Not with a sign or with zeros before it.
  if (error != std::errc() || KvKeyText(key, between) != text) return std::nullopt;
  return key;
}

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
