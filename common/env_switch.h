#pragma once
#include <cstdlib>
#include <string_view>

namespace stagecoach {

// "on" lets GPUs keep the weights of experts packed. Workers of a local server inherit it.
inline constexpr char kPackedExpertsSwitch[] = "STAGECOACH_PACKED_EXPERTS";

// Whether the environment variable has this value. No other thread may change the environment
// meanwhile.
inline bool IsSwitched(const char* variable, std::string_view value) {
  const char* const found = std::getenv(variable);
  return found != nullptr && found == value;
}

}  // namespace stagecoach
