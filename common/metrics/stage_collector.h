// Exports the stages' statistics as metrics. The router's page covers all stages, a worker's page
// its own. The fields of StatsResponse declare their metrics themselves, in stage.proto: name,
// help, type and labels.
#pragma once

#include <prometheus/collectable.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach {

// Thread-safe.
class StageCollector final : public prometheus::Collectable {
 public:
  // Returns one entry per stage. An absent entry means that the stage does not answer; the metrics
  // then report only that.
  using Source = std::function<std::vector<std::optional<v1::StatsResponse>>()>;
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // Adds `labels` to every metric, besides the stage's number.
  StageCollector(Source source, Labels labels)
      : source_(std::move(source)), labels_(std::move(labels)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;
  // After this call, the objects that the source uses may be destroyed.
  void Detach();

 private:
  mutable Mutex mutex_;
  Source source_ ABSL_GUARDED_BY(mutex_);  // null once detached
  const Labels labels_;
};

}  // namespace stagecoach
