// The lease by which this router's workers obey it.
#pragma once

#include <cstdint>

#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

// A new one, above `highest_epoch`, which is the highest that a worker of it has told of. Not below
// the milliseconds since 1970 either, so that epochs rise although a worker that was started anew
// remembers none.
v1::Lease MakeLease(uint64_t highest_epoch);

}  // namespace stagecoach::router
