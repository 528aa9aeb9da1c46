#include "common/size.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

struct Unit {
  absl::string_view name;
  double bytes;
};

constexpr double kKi = 1024.0;
constexpr std::array<Unit, 13> kUnits = {{{"kib", kKi},
                                          {"mib", kKi* kKi},
                                          {"gib", kKi* kKi* kKi},
                                          {"tib", kKi* kKi* kKi* kKi},
                                          {"kb", 1e3},
                                          {"mb", 1e6},
                                          {"gb", 1e9},
                                          {"tb", 1e12},
                                          {"k", kKi},
                                          {"m", kKi* kKi},
                                          {"g", kKi* kKi* kKi},
                                          {"t", kKi* kKi* kKi* kKi},
                                          {"b", 1.0}}};

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  const std::string lower = absl::AsciiStrToLower(
      absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size())));
  absl::string_view number = lower;
  double unit = 1.0;
  for (const Unit& candidate : kUnits) {
    if (absl::EndsWith(number, candidate.name)) {
      number.remove_suffix(candidate.name.size());
      unit = candidate.bytes;
      break;
    }
  }
  double value = 0;
  // SimpleAtod also accepts "inf" and "nan".
  if (!absl::SimpleAtod(absl::StripAsciiWhitespace(number), &value) || !(value >= 0) ||
      value * unit >= 9.2e18) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::string_view(text.data(), text.size()),
                     "\" is not a size; write it like 512MiB, 4GiB or 1073741824"));
  }
  return static_cast<uint64_t>(std::llround(value * unit));
}

std::string FormatBytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kNames.size()) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kNames[unit]);
}

}  // namespace stagecoach
