// Exports the state of the PipelineWatch as Prometheus metrics.
#pragma once

#include <vector>

#include "common/metrics/report_collector.h"
#include "router/dispatch/pipeline_watch.h"

namespace stagecoach::router {

// Each metric also has the stage's number.
class StallCollector final : public ReportCollector<PipelineWatch::Report> {
 public:
  using ReportCollector::ReportCollector;

 private:
  std::vector<prometheus::MetricFamily> FamiliesOf(
      const PipelineWatch::Report& report) const override;
};

}  // namespace stagecoach::router
