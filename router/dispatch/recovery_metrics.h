// Exports the PipelineKeeper's recoveries as Prometheus metrics.
#pragma once

#include <prometheus/collectable.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "router/dispatch/pipeline_keeper.h"

namespace stagecoach::router {

// Thread-safe.
class RecoveryCollector final : public prometheus::Collectable {
 public:
  using Source = std::function<PipelineKeeper::Report()>;
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // Every metric has `labels`.
  RecoveryCollector(Source source, Labels labels)
      : source_(std::move(source)), labels_(std::move(labels)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;
  // The objects that the source uses may be destroyed afterwards.
  void Detach();

 private:
  mutable Mutex mutex_;
  Source source_ ABSL_GUARDED_BY(mutex_);  // null once detached
  const Labels labels_;
};

}  // namespace stagecoach::router
