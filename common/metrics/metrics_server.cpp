#include "common/metrics/metrics_server.h"

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <utility>

#include "common/metrics/page_server.h"
#include "common/status.h"

namespace stagecoach {

absl::StatusOr<std::string> ServeMetrics(
    const std::string& address,
    const std::vector<std::shared_ptr<prometheus::Collectable>>& sources) {
  const std::vector<std::weak_ptr<prometheus::Collectable>> weak(sources.begin(), sources.end());
  SC_ASSIGN_OR_RETURN(
      std::unique_ptr<PageServer> server,
      PageServer::Start(address, "/metrics", "text/plain; version=0.0.4; charset=utf-8", [weak] {
        std::vector<prometheus::MetricFamily> families;
        for (const auto& one : weak) {
          const auto source = one.lock();
          if (source == nullptr) continue;
          for (auto& family : source->Collect()) families.push_back(std::move(family));
        }
        return prometheus::TextSerializer().Serialize(families);
      }));
  // Never destroyed: a source may wait for other objects, and process exit must not wait for it.
  return server.release()->address();
}

}  // namespace stagecoach
