// What the router tells Prometheus. Names that dashboards of this field already know start with
// "vllm:", our own with "stagecoach_".
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/registry.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/mutex.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace stagecoach::router {

class Scheduler;

// The one scheduler of this process; a label that vLLM's dashboards group by.
inline constexpr char kEngine[] = "0";

// Latencies and ends of requests, observed as they happen. Thread-safe.
class RouterMetrics {
 public:
  enum class End : uint8_t { kStop, kLength, kAbort };

  explicit RouterMetrics(const std::string& model_name);

  // Of work that waits for a thread: text to be made tokens, and grammars to be compiled.
  enum class Queue : uint8_t { kPrompts, kGrammars };

  void ObserveFirstToken(double seconds) const;
  void ObserveQueue(double seconds) const;
  void ObserveInterToken(double seconds) const;
  void ObserveEnd(End end, double e2e_seconds) const;

  // Of requests that were good, but not taken: kResourceExhausted as too many wait, kUnavailable as
  // the server ends. Others are not counted.
  void CountRefused(absl::StatusCode code) const;

  void AddQueued(Queue queue, int n) const;

  // A request that was let in with a key, whatever protocol it came by.
  void CountTenantRequest(const std::string& tenant) const;

  // Resumable streams that are kept, and what they have said.
  void SetStreams(size_t n_streams, size_t n_bytes) const;
  void CountStreamResumed() const;
  // For want of room a stream, or its beginning, was dropped before its time.
  void CountStreamDropped() const;

  std::shared_ptr<prometheus::Collectable> collectable() const { return registry_; }

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Histogram* time_to_first_token_;
  prometheus::Histogram* inter_token_;
  prometheus::Histogram* fine_inter_token_;
  prometheus::Histogram* queue_;
  prometheus::Histogram* e2e_;
  prometheus::Counter* ends_[3];
  prometheus::Gauge* queued_[2];
  prometheus::Counter* refused_full_;
  prometheus::Counter* refused_ending_;
  prometheus::Family<prometheus::Counter>* tenant_requests_;
  prometheus::Gauge* streams_;
  prometheus::Gauge* stream_bytes_;
  prometheus::Counter* streams_resumed_;
  prometheus::Counter* streams_dropped_;
};

// The scheduler's own numbers, asked for when Prometheus asks.
class SchedulerCollector final : public prometheus::Collectable {
 public:
  SchedulerCollector(Scheduler* scheduler, std::string model_name);

  std::vector<prometheus::MetricFamily> Collect() const override;
  // The scheduler may be destroyed afterwards.
  void Detach();

 private:
  const std::string model_name_;
  mutable Mutex mutex_;
  Scheduler* scheduler_ ABSL_GUARDED_BY(mutex_);  // null once detached
};

}  // namespace stagecoach::router
