// Exports spans to an OpenTelemetry receiver over OTLP/gRPC.
#pragma once

#include <grpcpp/grpcpp.h>
#include <prometheus/collectable.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/trace/trace.h"

namespace stagecoach {

struct OtlpOptions {
  std::string endpoint;                        // HOST:PORT
  std::string service;                         // "stagecoach-router"
  std::vector<TraceSpan::Attribute> resource;  // further attributes of this process
  size_t max_queued = 8192;                    // spans; further ones are dropped
  size_t max_batch = 512;
  std::chrono::milliseconds batch_time{500};  // longest wait for a batch to fill
  std::chrono::milliseconds call_timeout{5000};
  std::chrono::milliseconds flush_timeout{2000};  // at Stop
};

// Sends batches on a separate thread. If the receiver is unreachable, its spans are lost and one
// warning per minute is logged; nothing else is affected.
class OtlpExporter final : public SpanSink {
 public:
  explicit OtlpExporter(OtlpOptions options);
  ~OtlpExporter() override;
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  void Add(TraceSpan span) override;
  // Sends the remaining spans for at most flush_timeout and blocks meanwhile. Later spans are
  // dropped. The destructor does the same. Call Stop at process exit if other objects still hold
  // the exporter.
  void Stop();

  uint64_t n_sent() const { return n_sent_; }
  // Spans dropped because the queue was full or the receiver was unreachable.
  uint64_t n_dropped() const { return n_dropped_; }

 private:
  class Client;
  void Run();
  void Send(std::vector<TraceSpan> spans, std::chrono::milliseconds timeout);

  const OtlpOptions options_;
  const std::unique_ptr<Client> client_;
  std::atomic<uint64_t> n_sent_ = 0;
  std::atomic<uint64_t> n_dropped_ = 0;
  std::chrono::steady_clock::time_point next_warning_;  // thread_ only

  Mutex mutex_;
  CondVar wake_;
  std::vector<TraceSpan> queued_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last member: the thread uses all the others
};

// Exports stagecoach_trace_spans_total{result="sent"|"dropped"}.
std::shared_ptr<prometheus::Collectable> MakeTraceMetrics(std::shared_ptr<OtlpExporter> exporter);

}  // namespace stagecoach
