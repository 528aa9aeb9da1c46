#include "common/text/utf8.h"

#include <fmt/format.h>

#include <cstdint>

namespace stagecoach::text {
namespace {

enum class Kind { kWhole, kBroken, kOpen };

struct Character {
  Kind kind;
  size_t n_bytes;
};

// Reads the character at the start of a non-empty text. Well-formed byte sequences are those of
// table 3-7 of the Unicode standard.
Character Next(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Kind::kWhole, 1};
  size_t n_bytes = 0;
  uint8_t low = 0x80;  // bounds of the second byte
  uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    n_bytes = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    n_bytes = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    n_bytes = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Kind::kBroken, 1};
  }
  for (size_t i = 1; i < n_bytes; ++i) {
    if (i == text.size()) return {Kind::kOpen, i};
    if (byte(i) < low || byte(i) > high) return {Kind::kBroken, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Kind::kWhole, n_bytes};
}

}  // namespace

void TakeUtf8(std::string& pending, std::string& out) {
  std::string_view rest = pending;
  while (!rest.empty()) {
    const Character next = Next(rest);
    if (next.kind == Kind::kOpen) break;
    out += next.kind == Kind::kWhole ? rest.substr(0, next.n_bytes) : kReplacement;
    rest.remove_prefix(next.n_bytes);
  }
  pending.erase(0, pending.size() - rest.size());
}

bool IsUtf8(std::string_view text) { return !FirstBrokenByte(text); }

std::optional<size_t> FirstBrokenByte(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const Character next = Next(rest);
    if (next.kind != Kind::kWhole) return text.size() - rest.size();
    rest.remove_prefix(next.n_bytes);
  }
  return std::nullopt;
}

absl::Status CheckUtf8(std::string_view field, std::string_view text) {
  const std::optional<size_t> broken = FirstBrokenByte(text);
  if (!broken) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: is not valid UTF-8 at byte {}", field, *broken));
}

}  // namespace stagecoach::text
