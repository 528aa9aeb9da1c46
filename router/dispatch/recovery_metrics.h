// Exports the PipelineKeeper's recoveries as Prometheus metrics.
#pragma once

#include <vector>

#include "common/metrics/report_collector.h"
#include "router/dispatch/pipeline_keeper.h"

namespace stagecoach::router {

class RecoveryCollector final : public ReportCollector<PipelineKeeper::Report> {
 public:
  using ReportCollector::ReportCollector;

 private:
  std::vector<prometheus::MetricFamily> FamiliesOf(
      const PipelineKeeper::Report& report) const override;
};

}  // namespace stagecoach::router
