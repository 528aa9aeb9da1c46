// The text that Prometheus reads.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace prometheus {
class Collectable;
}  // namespace prometheus

namespace stagecoach {

inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

// The metrics of all sources. Sources may have metrics of one name, with different labels: the
// format wants them together.
std::string MetricsPage(const std::vector<std::shared_ptr<prometheus::Collectable>>& sources);

}  // namespace stagecoach
