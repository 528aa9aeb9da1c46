// What the stages say of themselves, for those who watch.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/rpc/internal_access.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

// By stage; absent where it has not answered for 2 s, nor since it was last asked. Waits for new
// answers, but not longer than 0.1 s: then the last ones count. Thread-safe.
using StageStats = std::function<std::vector<std::optional<v1::StatsResponse>>()>;

// `most_age`: in place of the 2 s.
StageStats MakeStageStats(const std::vector<std::string>& addresses,
                          std::chrono::milliseconds most_age = std::chrono::seconds(2),
                          const InternalAccess& access = {});

// The milliseconds that each stage has computed since the epoch's start.
using StageLoads = std::function<std::vector<std::optional<double>>()>;

StageLoads MakeStageLoads(StageStats stats);

}  // namespace stagecoach::router
