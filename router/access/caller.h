// Who sends a request, whatever protocol it comes by.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "router/access/rate_limit.h"

namespace stagecoach::router {

// The best priority, the lowest, that requests may have: without keys, where all are one tenant,
// and with a key that says nothing else.
inline constexpr int32_t kKeylessMaxPriority = 0, kDefaultMaxPriority = -100;

struct Caller {
  std::string tenant;   // printable ASCII; empty: the server has no keys, and all are one
  uint32_t weight = 1;  // of the tenant's shares
  int32_t max_priority = kKeylessMaxPriority;
  std::shared_ptr<RateLimit> rate;  // null: none

  // INVALID_ARGUMENT.
  absl::Status CheckPriority(int32_t priority) const;
  // A request whose one choice was taken from the rate has so many.
  absl::Status TakeChoices(size_t n) const;
};

}  // namespace stagecoach::router
