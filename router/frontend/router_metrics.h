// The router's Prometheus metrics. Metrics that dashboards already know from vLLM start with
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

// The label of a replica's metrics that vLLM's dashboards group by. What is not of one replica has
// that of the first.
std::string EngineOf(size_t replica);

// Latencies and outcomes of requests, recorded as they happen. Thread-safe.
class RouterMetrics {
 public:
  enum class End : uint8_t { kStop, kLength, kAbort };

  explicit RouterMetrics(const std::string& model_name);

  // Queues of work that waits for a thread: text to tokenize, and grammars to compile.
  enum class Queue : uint8_t { kPrompts, kGrammars };

  void ObserveFirstToken(double seconds) const;
  void ObserveQueue(double seconds) const;
  void ObserveInterToken(double seconds) const;
  void ObserveEnd(End end, double e2e_seconds) const;

  // Counts valid requests that were refused: kResourceExhausted because too many wait, kUnavailable
  // because the server shuts down. Ignores other codes.
  void CountRefused(absl::StatusCode code) const;

  void AddQueued(Queue queue, int n) const;

  // A request that was admitted with a key, over any protocol.
  void CountTenantRequest(const std::string& tenant) const;

  // The number of kept resumable streams, and the bytes kept for them.
  void SetStreams(size_t n_streams, size_t n_bytes) const;
  void CountStreamResumed() const;
  // A stream, or its beginning, was dropped early for lack of memory or places.
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

// A scheduler's own numbers, collected when Prometheus scrapes.
class SchedulerCollector final : public prometheus::Collectable {
 public:
  SchedulerCollector(Scheduler* scheduler, std::string model_name, std::string engine);

  std::vector<prometheus::MetricFamily> Collect() const override;
  // The scheduler may be destroyed afterwards.
  void Detach();

 private:
  const std::string model_name_;
  const std::string engine_;
  mutable Mutex mutex_;
  Scheduler* scheduler_ ABSL_GUARDED_BY(mutex_);  // null once detached
};

}  // namespace stagecoach::router
