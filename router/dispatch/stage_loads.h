// How busy the stages are, for those who watch.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace stagecoach::router {

// By stage, the milliseconds that it has computed since the epoch's start; absent where it does not
// answer within 0.1 s. Blocks meanwhile; thread-safe.
using StageLoads = std::function<std::vector<std::optional<double>>()>;

StageLoads MakeStageLoads(const std::vector<std::string>& addresses);

}  // namespace stagecoach::router
