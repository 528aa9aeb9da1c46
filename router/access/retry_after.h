// How long a refused client should wait, carried by the refusal itself.
#pragma once

#include "absl/status/status.h"

namespace stagecoach::router {

// About the time in which a full queue moves on.
inline constexpr int kRetryAfterS = 1;

// For a refusal that knows better than kRetryAfterS.
absl::Status WithRetryAfter(absl::Status status, int seconds);

// Seconds that the client should wait; 0: there is no use in trying again.
int RetryAfterS(const absl::Status& status);

}  // namespace stagecoach::router
