// The time that a refused client should wait, carried as a payload of the error status.
#pragma once

#include "absl/status/status.h"

namespace stagecoach::router {

// About the time until a full queue has room again.
inline constexpr int kRetryAfterS = 1;

// Sets the wait time if it is known better than kRetryAfterS.
absl::Status WithRetryAfter(absl::Status status, int seconds);

// Seconds that the client should wait. 0: trying again does not help.
int RetryAfterS(const absl::Status& status);

}  // namespace stagecoach::router
