#include "router/journal/journal_metrics.h"

namespace stagecoach::router {

std::vector<prometheus::MetricFamily> JournalCollector::FamiliesOf(
    const Journal::Report& report) const {
  using prometheus::MetricType;
  return {NewFamily("stagecoach_journal_failing",
                    "1 while the journal cannot be written; streams would not outlive the router",
                    MetricType::Gauge, report.failing ? 1 : 0),
          NewFamily("stagecoach_journal_failures_total",
                    "Failures to write, each of which gave up all streams in the journal",
                    MetricType::Counter, static_cast<double>(report.n_failures)),
          NewFamily("stagecoach_journal_given_up_total",
                    "Streams that were given up because the journal was full (--journal-size)",
                    MetricType::Counter, static_cast<double>(report.n_given_up)),
          NewFamily("stagecoach_journal_streams", "Streams in the journal", MetricType::Gauge,
                    static_cast<double>(report.n_streams)),
          NewFamily("stagecoach_journal_bytes", "Size of what the journal holds", MetricType::Gauge,
                    static_cast<double>(report.n_bytes))};
}

}  // namespace stagecoach::router
