#include "router/access/caller.h"

#include <fmt/format.h>

namespace stagecoach::router {

absl::Status Caller::CheckPriority(int32_t priority) const {
  if (priority >= max_priority) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "priority: {} is below {}, the lowest that {} may use{}; lower values are served first",
      priority, max_priority, tenant.empty() ? "a client without a key" : "this key",
      tenant.empty() ? "" : " (max_priority)"));
}

absl::Status Caller::TakeChoices(size_t n) const {
  if (rate == nullptr || n < 2) return absl::OkStatus();
  return rate->Take(static_cast<double>(n - 1), RateLimit::Clock::now(), /*n_taken=*/1);
}

}  // namespace stagecoach::router
