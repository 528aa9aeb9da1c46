// The stages' own statistics, for monitoring.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/rpc/internal_access.h"
#include "common/stage_loads.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

// Per stage; absent if the stage has not answered within the last 2 s, and not since the last call
// either. Waits for new answers for at most 0.1 s, and then uses the last ones. Thread-safe.
using StageStats = std::function<std::vector<std::optional<v1::StatsResponse>>()>;

// `most_age`: replaces the 2 s.
StageStats MakeStageStats(const std::vector<std::string>& addresses,
                          std::chrono::milliseconds most_age = std::chrono::seconds(2),
                          const InternalAccess& access = {});

StageLoads MakeStageLoads(StageStats stats);

}  // namespace stagecoach::router
