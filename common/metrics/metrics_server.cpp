#include "common/metrics/metrics_server.h"

#include <fmt/format.h>
#include <prometheus/exposer.h>

#include <exception>

#include "common/check.h"

namespace stagecoach {

absl::StatusOr<std::string> ServeMetrics(
    const std::string& address,
    const std::vector<std::shared_ptr<prometheus::Collectable>>& sources) {
  // Never destroyed: its web server takes 2 s to stop, which no process should wait for at its end.
  static prometheus::Exposer* exposer = nullptr;
  SC_CHECK(exposer == nullptr);
  try {
    exposer = new prometheus::Exposer(address);
  } catch (const std::exception& error) {
    return absl::UnavailableError(fmt::format(
        "cannot serve metrics on {}: is the port in use, or the host not this machine's? ({})",
        address, error.what()));
  }
  for (const auto& source : sources) exposer->RegisterCollectable(source);
  const std::vector<int> ports = exposer->GetListeningPorts();
  SC_CHECK(!ports.empty());
  return fmt::format("{}:{}", address.substr(0, address.rfind(':')), ports.front());
}

}  // namespace stagecoach
