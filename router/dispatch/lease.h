// The lease through which this router controls its workers.
#pragma once

#include <cstdint>
#include <string>

#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

// A name for a router, unlike all others: "HOST/PID/RANDOM".
std::string NewLeaseHolder();

// Makes a new lease. Its epoch is above `highest_epoch`, the highest epoch that a worker reported.
// It is also at least the milliseconds since 1970, so that epochs increase even if restarted
// workers have forgotten the last one.
v1::Lease MakeLease(uint64_t highest_epoch, const std::string& holder);

}  // namespace stagecoach::router
