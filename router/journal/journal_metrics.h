// Exports the state of the journal as Prometheus metrics.
#pragma once

#include <vector>

#include "common/metrics/report_collector.h"
#include "router/journal/journal.h"

namespace stagecoach::router {

class JournalCollector final : public ReportCollector<Journal::Report> {
 public:
  using ReportCollector::ReportCollector;

 private:
  std::vector<prometheus::MetricFamily> FamiliesOf(const Journal::Report& report) const override;
};

}  // namespace stagecoach::router
