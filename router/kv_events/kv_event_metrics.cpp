#include "router/kv_events/kv_event_metrics.h"

namespace stagecoach::router {

std::vector<prometheus::MetricFamily> KvEventCollector::FamiliesOf(
    const KvEventPublisher::Report& report) const {
  using prometheus::MetricType;
  return {NewFamily("stagecoach_kv_events_published_total", "Batches of KV events that were sent",
                    MetricType::Counter, static_cast<double>(report.n_published)),
          NewFamily("stagecoach_kv_events_dropped_total",
                    "Batches of KV events that had no room in the queue; the whole cache was "
                    "published anew after each row of them",
                    MetricType::Counter, static_cast<double>(report.n_dropped)),
          NewFamily("stagecoach_kv_events_replays_total",
                    "Requests for past KV events that were answered", MetricType::Counter,
                    static_cast<double>(report.n_replays))};
}

}  // namespace stagecoach::router
