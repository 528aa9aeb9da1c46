// Exports what an object reports as Prometheus metrics, until the object goes.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"

namespace stagecoach {

// Thread-safe.
template <typename Report>
class ReportCollector : public prometheus::Collectable {
 public:
  using Source = std::function<Report()>;
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // Every metric has `labels`.
  ReportCollector(Source source, Labels labels)
      : source_(std::move(source)), labels_(std::move(labels)) {}

  std::vector<prometheus::MetricFamily> Collect() const final {
    const MutexLock lock(mutex_);
    if (source_ == nullptr) return {};
    return FamiliesOf(source_());
  }
  // The objects that the source uses may be destroyed afterwards.
  void Detach() {
    const MutexLock lock(mutex_);
    source_ = nullptr;
  }

 protected:
  // A metric that has only `labels` so far.
  prometheus::ClientMetric NewMetric() const {
    prometheus::ClientMetric metric;
    for (const auto& [name, value] : labels_) metric.label.push_back({name, value});
    return metric;
  }

  // A metric family with one metric.
  prometheus::MetricFamily NewFamily(std::string name, std::string help,
                                     prometheus::MetricType type, double value) const {
    prometheus::MetricFamily family{
        .name = std::move(name), .help = std::move(help), .type = type, .metric = {NewMetric()}};
    if (type == prometheus::MetricType::Counter) {
      family.metric.front().counter.value = value;
    } else {
      family.metric.front().gauge.value = value;
    }
    return family;
  }

 private:
  virtual std::vector<prometheus::MetricFamily> FamiliesOf(const Report& report) const = 0;

  mutable Mutex mutex_;
  Source source_ ABSL_GUARDED_BY(mutex_);  // null once detached
  const Labels labels_;
};

}  // namespace stagecoach
