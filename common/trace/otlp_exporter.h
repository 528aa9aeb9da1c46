// Spans to an OpenTelemetry receiver, over OTLP/gRPC.
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
  size_t max_queued = 8192;                    // spans; more are dropped
  size_t max_batch = 512;
  std::chrono::milliseconds batch_time{500};  // a span waits no longer than that for others
  std::chrono::milliseconds call_timeout{5000};
  std::chrono::milliseconds flush_timeout{2000};  // at the end
};

// A thread of its own sends batches. A receiver that is away costs its spans, and one warning a
// minute, and nothing else.
class OtlpExporter final : public SpanSink {
 public:
  explicit OtlpExporter(OtlpOptions options);
  ~OtlpExporter() override;
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  void Add(TraceSpan span) override;
  // Sends what is left, if that is quick, and blocks meanwhile. Later spans are dropped. The
  // destructor does so as well: this is for the end of a process that others keep it alive in.
  void Stop();

  uint64_t n_sent() const { return n_sent_; }
  // For want of room, or of a receiver.
  uint64_t n_dropped() const { return n_dropped_; }

 private:
  class Client;
  void Run();
  void Send(std::vector<TraceSpan> spans, std::chrono::milliseconds timeout);

  const OtlpOptions options_;
  const std::unique_ptr<Client> client_;
  std::atomic<uint64_t> n_sent_ = 0;
  std::atomic<uint64_t> n_dropped_ = 0;
  std::chrono::steady_clock::time_point next_warning_;  // of the thread

  Mutex mutex_;
  CondVar wake_;
  std::vector<TraceSpan> queued_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses all of the above
};

// stagecoach_trace_spans_total{result="sent"|"dropped"}. `exporter` outlives the metrics' last use.
std::shared_ptr<prometheus::Collectable> MakeTraceMetrics(std::shared_ptr<OtlpExporter> exporter);

}  // namespace stagecoach
