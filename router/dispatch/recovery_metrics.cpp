#include "router/dispatch/recovery_metrics.h"

#include <prometheus/metric_family.h>

namespace stagecoach::router {

std::vector<prometheus::MetricFamily> RecoveryCollector::FamiliesOf(
    const PipelineKeeper::Report& report) const {
  const auto family = [this](std::string name, std::string help, prometheus::MetricType type) {
    prometheus::MetricFamily made;
    made.name = std::move(name);
    made.help = std::move(help);
    made.type = type;
    made.metric.push_back(NewMetric());
    return made;
  };
  auto recovering = family("stagecoach_pipeline_recovering",
                           "1 while a lost stage is being replaced; requests wait",
                           prometheus::MetricType::Gauge);
  recovering.metric.front().gauge.value = report.recovering.empty() ? 0 : 1;
  auto count = family("stagecoach_pipeline_recoveries_total",
                      "Losses of a stage or its link after which the pipeline went on",
                      prometheus::MetricType::Counter);
  count.metric.front().counter.value = static_cast<double>(report.n_recoveries);
  auto seconds =
      family("stagecoach_pipeline_recovery_seconds_total",
             "Time of these recoveries, from the loss until all stages have joined again",
             prometheus::MetricType::Counter);
  seconds.metric.front().counter.value = report.recovery_seconds;
  return {std::move(recovering), std::move(count), std::move(seconds)};
}

}  // namespace stagecoach::router
