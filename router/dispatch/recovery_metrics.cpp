#include "router/dispatch/recovery_metrics.h"

#include <prometheus/metric_family.h>

#include <string>
#include <utility>

namespace stagecoach::router {

std::vector<prometheus::MetricFamily> RecoveryCollector::FamiliesOf(
    const PipelineKeeper::Report& report) const {
  const auto family = [](std::string name, std::string help, prometheus::MetricType type) {
    prometheus::MetricFamily made;
    made.name = std::move(name);
    made.help = std::move(help);
    made.type = type;
    return made;
  };
  const auto counter = [this](double value, const Labels& labels) {
    prometheus::ClientMetric metric = NewMetric();
    for (const auto& [name, text] : labels) metric.label.push_back({name, text});
    metric.counter.value = value;
    return metric;
  };
  auto recovering = family("stagecoach_pipeline_recovering",
                           "1 while a lost stage is being replaced; requests wait",
                           prometheus::MetricType::Gauge);
  recovering.metric.push_back(NewMetric());
  recovering.metric.front().gauge.value = report.recovering.empty() ? 0 : 1;
  auto count = family("stagecoach_pipeline_recoveries_total",
                      "Losses of a stage or its link after which the pipeline went on, by cause",
                      prometheus::MetricType::Counter);
  for (size_t stage = 0; stage < report.recoveries.size(); ++stage) {
    for (size_t cause = 0; cause < kLossCauses; ++cause) {
      count.metric.push_back(counter(
          static_cast<double>(report.recoveries[stage][cause]),
          {{"stage", std::to_string(stage)}, {"cause", std::string(kLossCauseNames[cause])}}));
    }
  }
  auto seconds =
      family("stagecoach_pipeline_recovery_seconds_total",
             "Time of these recoveries, from the loss until all stages have joined again, by phase",
             prometheus::MetricType::Counter);
  for (size_t phase = 0; phase < report.times.size(); ++phase) {
    seconds.metric.push_back(
        counter(report.times[phase].count(), {{"phase", std::string(kRecoveryPhases[phase])}}));
  }
  return {std::move(recovering), std::move(count), std::move(seconds)};
}

}  // namespace stagecoach::router
