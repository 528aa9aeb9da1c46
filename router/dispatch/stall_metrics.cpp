#include "router/dispatch/stall_metrics.h"

#include <prometheus/metric_family.h>

namespace stagecoach::router {

std::vector<prometheus::MetricFamily> StallCollector::FamiliesOf(
    const PipelineWatch::Report& report) const {
  prometheus::MetricFamily stalled, stalls;
  stalled.name = "stagecoach_stage_stalled";
  stalled.help = "1 while the stage sends no progress message or does not finish a step in time";
  stalled.type = prometheus::MetricType::Gauge;
  stalls.name = "stagecoach_stage_stalls_total";
  stalls.help =
      "Stalls of the stage, by reason: silent (no progress message) or step (a step not finished "
      "in time)";
  stalls.type = prometheus::MetricType::Counter;
  const auto labelled = [this](size_t stage) {
    prometheus::ClientMetric metric = NewMetric();
    metric.label.push_back({"stage", std::to_string(stage)});
    return metric;
  };
  for (size_t i = 0; i < report.counts.size(); ++i) {
    prometheus::ClientMetric now = labelled(i);
    now.gauge.value = report.stalled[i].empty() ? 0 : 1;
    stalled.metric.push_back(std::move(now));
    for (const auto& [reason, count] :
         {std::pair("silent", report.counts[i].silent), std::pair("step", report.counts[i].step)}) {
      prometheus::ClientMetric times = labelled(i);
      times.label.push_back({"reason", reason});
      times.counter.value = static_cast<double>(count);
      stalls.metric.push_back(std::move(times));
    }
  }
  return {std::move(stalled), std::move(stalls)};
}

}  // namespace stagecoach::router
