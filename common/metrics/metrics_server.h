// The Prometheus page of a process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace prometheus {
class Collectable;
}  // namespace prometheus

namespace stagecoach {

// Serves /metrics on HOST:PORT (port 0: any free one) from now to the process's end and returns the
// real HOST:PORT. A source that is destroyed is left out from then on.
// UNAVAILABLE when the address cannot be bound.
absl::StatusOr<std::string> ServeMetrics(
    const std::string& address,
    const std::vector<std::shared_ptr<prometheus::Collectable>>& sources);

}  // namespace stagecoach
