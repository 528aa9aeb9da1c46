#include "common/metrics/metrics_server.h"

#include <prometheus/collectable.h>

#include <utility>

#include "common/metrics/metrics_page.h"
#include "common/metrics/page_server.h"
#include "common/status.h"

namespace stagecoach {

absl::StatusOr<std::string> ServeMetrics(
    const std::string& address,
    const std::vector<std::shared_ptr<prometheus::Collectable>>& sources) {
  const std::vector<std::weak_ptr<prometheus::Collectable>> weak(sources.begin(), sources.end());
  SC_ASSIGN_OR_RETURN(std::unique_ptr<PageServer> server,
                      PageServer::Start(address, "/metrics", kMetricsType, [weak] {
                        std::vector<std::shared_ptr<prometheus::Collectable>> present;
                        for (const auto& one : weak) {
                          if (auto source = one.lock()) present.push_back(std::move(source));
                        }
                        return MetricsPage(present);
                      }));
  // Never destroyed: a source may wait for other objects, and process exit must not wait for it.
  return server.release()->address();
}

}  // namespace stagecoach
