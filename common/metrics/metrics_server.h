// The Prometheus metrics page of a process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace prometheus {
class Collectable;
}  // namespace prometheus

namespace stagecoach {

// Serves /metrics on HOST:PORT (port 0: any free port) until the process ends. Returns the actual
// HOST:PORT. A destroyed source is left out from then on. UNAVAILABLE if the address cannot be
// bound.
absl::StatusOr<std::string> ServeMetrics(
    const std::string& address,
    const std::vector<std::shared_ptr<prometheus::Collectable>>& sources);

}  // namespace stagecoach
