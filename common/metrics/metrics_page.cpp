#include "common/metrics/metrics_page.h"

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <utility>

#include "absl/container/flat_hash_map.h"

namespace stagecoach {

std::string MetricsPage(const std::vector<std::shared_ptr<prometheus::Collectable>>& sources) {
  std::vector<prometheus::MetricFamily> families;
  absl::flat_hash_map<std::string, size_t> places;
  for (const auto& source : sources) {
    for (prometheus::MetricFamily& family : source->Collect()) {
      const auto [place, is_new] = places.try_emplace(family.name, families.size());
      if (is_new) {
        families.push_back(std::move(family));
        continue;
      }
      auto& metrics = families[place->second].metric;
      for (prometheus::ClientMetric& metric : family.metric) metrics.push_back(std::move(metric));
    }
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace stagecoach
