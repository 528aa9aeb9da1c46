// What stages say of themselves, as metrics: of all of them on the router's page, of itself on a
// worker's.
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
  // One of each stage that there is; absent: it does not answer, and only that is told.
  using Source = std::function<std::vector<std::optional<v1::StatsResponse>>()>;
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // `labels` stand on every metric, with the stage's number.
  StageCollector(Source source, Labels labels)
      : source_(std::move(source)), labels_(std::move(labels)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;
  // What the source asks may be destroyed afterwards.
  void Detach();

 private:
  mutable Mutex mutex_;
  Source source_ ABSL_GUARDED_BY(mutex_);  // null once detached
  const Labels labels_;
};

}  // namespace stagecoach
