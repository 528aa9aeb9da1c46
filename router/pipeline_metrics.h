// The metrics of all pipelines, also of those that are added later.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/mutex.h"

namespace stagecoach::router {

// Thread-safe.
class PipelineMetrics final : public prometheus::Collectable {
 public:
  using Sources = std::vector<std::shared_ptr<prometheus::Collectable>>;

  void Add(Sources sources) {
    const MutexLock lock(mutex_);
    for (auto& source : sources) sources_.push_back(std::move(source));
  }
  std::vector<prometheus::MetricFamily> Collect() const override {
    Sources sources;
    {
      const MutexLock lock(mutex_);
      sources = sources_;
    }
    std::vector<prometheus::MetricFamily> all;
    for (const auto& source : sources) {
      for (prometheus::MetricFamily& family : source->Collect()) all.push_back(std::move(family));
    }
    return all;
  }

 private:
  mutable Mutex mutex_;
  Sources sources_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::router
