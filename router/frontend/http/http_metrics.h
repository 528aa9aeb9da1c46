// The HTTP server's Prometheus metrics.
#pragma once

#include <prometheus/registry.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "common/mutex.h"

namespace prometheus {
class Counter;
class Gauge;
template <typename T>
class Family;
}  // namespace prometheus

namespace stagecoach::router::http {

// Thread-safe.
class HttpMetrics {
 public:
  HttpMetrics();

  void ConnectionOpened();
  void ConnectionClosed();
  void CountResponse(int status);

  std::shared_ptr<prometheus::Collectable> collectable() const { return registry_; }

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Gauge* connections_;
  prometheus::Family<prometheus::Counter>* responses_;
  Mutex mutex_;
  std::unordered_map<int, prometheus::Counter*> by_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::router::http
