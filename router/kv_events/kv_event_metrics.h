// Exports what the publisher of KV events has done as Prometheus metrics.
#pragma once

#include <vector>

#include "common/metrics/report_collector.h"
#include "router/kv_events/publisher.h"

namespace stagecoach::router {

class KvEventCollector final : public ReportCollector<KvEventPublisher::Report> {
 public:
  using ReportCollector::ReportCollector;

 private:
  std::vector<prometheus::MetricFamily> FamiliesOf(
      const KvEventPublisher::Report& report) const override;
};

}  // namespace stagecoach::router
