#include "common/sampling_numbers.h"

#include <fmt/format.h>

namespace stagecoach {

std::string BoundsText(const SamplingNumber& number) {
  if (number.max >= std::numeric_limits<int32_t>::max()) return "";
  return fmt::format("{}{}, {}]", number.above_min ? '(' : '[', number.min, number.max);
}

std::string RangeText(const SamplingNumber& number) {
  if (const std::string bounds = BoundsText(number); !bounds.empty()) {
    return fmt::format("in {}{}", bounds, number.note);
  }
  return fmt::format("{}{} {}{}", number.is_integer ? "" : "a number ",
                     number.above_min ? ">" : ">=", number.min, number.note);
}

}  // namespace stagecoach
