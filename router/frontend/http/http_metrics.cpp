#include "router/frontend/http/http_metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>

namespace stagecoach::router::http {

HttpMetrics::HttpMetrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      connections_(&prometheus::BuildGauge()
                        .Name("stagecoach_http_connections")
                        .Help("Open HTTP connections")
                        .Register(*registry_)
                        .Add({})),
      responses_(&prometheus::BuildCounter()
                      .Name("stagecoach_http_responses_total")
                      .Help("HTTP responses, by status")
                      .Register(*registry_)) {}

void HttpMetrics::ConnectionOpened() { connections_->Increment(); }

void HttpMetrics::ConnectionClosed() { connections_->Decrement(); }

void HttpMetrics::CountResponse(int status) {
  MutexLock lock(mutex_);
  prometheus::Counter*& counter = by_status_[status];
  if (counter == nullptr) counter = &responses_->Add({{"status", fmt::format("{}", status)}});
  counter->Increment();
}

}  // namespace stagecoach::router::http
