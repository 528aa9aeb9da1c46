#pragma once
#include <cstdlib>
#include <string_view>

namespace stagecoach {

// "off": GPUs expand the weights of experts to 16 bits, to compare. Workers of a local server
// inherit it.
inline constexpr char kPackedExpertsSwitch[] = "STAGECOACH_PACKED_EXPERTS";

// Whether the environment variable has this value. No other thread may change the environment
// meanwhile.
inline bool IsSwitched(const char* variable, std::string_view value) {
  const char* const found = std::getenv(variable);
  return found != nullptr && found == value;
}

}  // namespace stagecoach
