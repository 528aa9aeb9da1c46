// How long the parts of a recovery take.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace stagecoach::router {

enum class RecoveryPhase : uint8_t {
  kWait,  // until a worker answers at every address
  kLoad,  // until every worker holds its layers
  kJoin,  // until the streams to all stages are open
};
inline constexpr std::array<std::string_view, 3> kRecoveryPhases = {"wait", "load", "join"};

using RecoveryTimes = std::array<std::chrono::duration<double>, kRecoveryPhases.size()>;

// Called when a phase begins, which ends the one before.
using EnterPhase = std::function<void(RecoveryPhase)>;

}  // namespace stagecoach::router
