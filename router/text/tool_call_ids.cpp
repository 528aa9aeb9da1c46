#include "router/text/tool_call_ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <random>

namespace stagecoach::router {
namespace {

constexpr std::string_view kAlphanumerics =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr size_t kMistralIdSize = 9;  // Mistral's templates raise an exception for other sizes
constexpr size_t kIdSize = 24;
constexpr size_t kMaxDigits = 9;  // of a number in an id

bool IsMistral(ToolFamily family) {
  return family == ToolFamily::kMistral || family == ToolFamily::kMistralArgs;
}

// n characters that depend only on `key`.
std::string AlphanumericsOf(std::string_view key, size_t n) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::mt19937_64 generator(hash);
  std::string text;
  for (size_t i = 0; i < n; ++i) text += kAlphanumerics[generator() % kAlphanumerics.size()];
  return text;
}

std::string NumberedId(std::string_view name, uint32_t number) {
  return fmt::format("functions.{}:{}", name, number);
}

// The number in an id that has the form of NumberedId.
std::optional<uint32_t> NumberIn(std::string_view id, std::string_view name) {
  const std::string_view digits = id.substr(id.rfind(':') + 1);
  if (digits.size() > kMaxDigits) return std::nullopt;
  uint32_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return id == NumberedId(name, number) ? std::optional(number) : std::nullopt;
}

}  // namespace

std::string MakeToolCallId(ToolFamily family, std::string_view key, std::string_view name,
                           uint32_t number) {
  if (family == ToolFamily::kKimi) return NumberedId(name, number);
  return IsMistral(family) ? AlphanumericsOf(key, kMistralIdSize)
                           : "call_" + AlphanumericsOf(key, kIdSize);
}

std::string ToolCallIds::OfCall(std::string_view id, std::string_view name) {
  if (family_ != ToolFamily::kKimi) return OfResult(id);
  // A number below those before it stands for another call already.
  const uint32_t number = std::max(NumberIn(id, name).value_or(0), next_number_);
  next_number_ = number + 1;
  return given_[std::string(id)] = NumberedId(name, number);
}

std::string ToolCallIds::OfResult(std::string_view id) const {
  if (IsMistral(family_)) {
    const bool accepted =
        id.size() == kMistralIdSize &&
        std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
    return accepted ? std::string(id) : AlphanumericsOf(id, kMistralIdSize);
  }
  const auto given = given_.find(std::string(id));
  return given != given_.end() ? given->second : std::string(id);
}

}  // namespace stagecoach::router
