// The sender of a request, independent of the protocol.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "router/access/rate_limit.h"

namespace stagecoach::router {

// The best (lowest) priority value that a request may have: if the server has no keys, so that all
// callers are one tenant; and with a key that sets no max_priority.
inline constexpr int32_t kKeylessMaxPriority = 0, kDefaultMaxPriority = -100;

struct Caller {
  // Printable ASCII; empty: the server has no keys, and all callers are one tenant.
  std::string tenant;
  uint32_t weight = 1;  // the tenant's weight in shares
  int32_t max_priority = kKeylessMaxPriority;
  std::shared_ptr<RateLimit> rate;  // null: no limit

  // INVALID_ARGUMENT if `priority` is better than max_priority.
  absl::Status CheckPriority(int32_t priority) const;
  // Takes the remaining n - 1 choices from the rate, for a request of n choices of which Admit took
  // one.
  absl::Status TakeChoices(size_t n) const;
};

}  // namespace stagecoach::router
