// The snapshots of several schedulers as one.
#pragma once

#include "router/scheduler/scheduler.h"

namespace stagecoach::router {

// Adds `one` to `sum`, which begins empty with `down` set: the sum is down if all are. Blocks of a
// pipeline that is lost for good do not count.
void AddSnapshot(const SchedulerSnapshot& one, SchedulerSnapshot& sum);

}  // namespace stagecoach::router
