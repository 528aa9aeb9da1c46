#include "common/trace/otlp_exporter.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "common/mutex.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace stagecoach {
namespace {

namespace otlp = opentelemetry::proto::collector::trace::v1;

// A receiver on a real port. It answers only while the test lets it.
class Receiver final : public otlp::TraceService::Service {
 public:
  Receiver() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  ~Receiver() override {
    Open();
    server_->Shutdown();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void Hold() {
    MutexLock lock(mutex_);
    held_ = true;
  }
  void Open() {
    MutexLock lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  void WaitForCall() {
    MutexLock lock(mutex_);
    changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return n_calls_ > 0; });
  }
  std::vector<otlp::ExportTraceServiceRequest> requests() {
    MutexLock lock(mutex_);
    return requests_;
  }

 private:
  grpc::Status Export(grpc::ServerContext*, const otlp::ExportTraceServiceRequest* request,
                      otlp::ExportTraceServiceResponse*) override {
    MutexLock lock(mutex_);
    ++n_calls_;
    changed_.notify_all();
    changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !held_; });
    requests_.push_back(*request);
    return grpc::Status::OK;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  int n_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<otlp::ExportTraceServiceRequest> requests_ ABSL_GUARDED_BY(mutex_);
};

// Options with which spans are sent only on Stop or when a batch is full, never by time.
OtlpOptions Unhurried(const Receiver& receiver) {
  return {.endpoint = receiver.address(),
          .service = "test",
          .batch_time = std::chrono::hours(1),
          .flush_timeout = std::chrono::minutes(5)};
}

TraceSpan Span(const std::string& name) {
  return {.trace_id = NewTraceId(), .span_id = NewSpanId(), .name = name};
}

TEST_CASE("the exporter delivers all added spans before it is destroyed") {
  Receiver receiver;
  TraceSpan span = Span("request");
  span.parent = NewSpanId();
  span.is_server = true;
  span.begin_unix_ns = 1'700'000'000'000'000'000;
  span.end_unix_ns = 1'700'000'000'000'000'500;
  span.attributes = {{"text", "value"}, {"whole", int64_t{7}}, {"part", 0.5}};
  span.error = "lost";
  {
    OtlpExporter exporter(Unhurried(receiver));
    exporter.Add(span);
    exporter.Add(Span("second"));
  }
  const auto requests = receiver.requests();
  REQUIRE(requests.size() == 1);
  const otlp::ResourceSpans& resource = requests[0].resource_spans(0);
  CHECK(resource.resource().attributes(0).key() == "service.name");
  CHECK(resource.resource().attributes(0).value().string_value() == "test");
  REQUIRE(resource.scope_spans(0).spans_size() == 2);
  const otlp::Span& got = resource.scope_spans(0).spans(0);
  CHECK(got.trace_id() == std::string(span.trace_id.begin(), span.trace_id.end()));
  CHECK(got.parent_span_id() == std::string(span.parent->begin(), span.parent->end()));
  CHECK(got.kind() == otlp::Span::SPAN_KIND_SERVER);
  CHECK(got.end_time_unix_nano() - got.start_time_unix_nano() == 500);
  REQUIRE(got.attributes_size() == 3);
  CHECK(got.attributes(1).value().int_value() == 7);
  CHECK(got.attributes(2).value().double_value() == 0.5);
  CHECK(got.status().code() == otlp::Status::STATUS_CODE_ERROR);
  CHECK(got.status().message() == "lost");
  CHECK(resource.scope_spans(0).spans(1).parent_span_id().empty());
}

TEST_CASE("a stop sends the remaining spans, and later spans are dropped") {
  Receiver receiver;
  OtlpExporter exporter(Unhurried(receiver));
  exporter.Add(Span("in time"));
  exporter.Stop();
  CHECK(receiver.requests().size() == 1);
  exporter.Add(Span("late"));
  CHECK(exporter.n_sent() == 1);
  CHECK(exporter.n_dropped() == 1);
}

TEST_CASE("a receiver that does not answer loses only spans beyond the queue, and nobody waits") {
  Receiver receiver;
  receiver.Hold();
  OtlpExporter exporter({.endpoint = receiver.address(),
                         .service = "test",
                         .max_queued = 10,
                         .max_batch = 1,
                         .call_timeout = std::chrono::minutes(5)});
  exporter.Add(Span("first"));
  receiver.WaitForCall();
  for (int i = 0; i < 25; ++i) exporter.Add(Span("more"));
  CHECK(exporter.n_dropped() == 15);
  receiver.Open();
}

TEST_CASE("an unreachable receiver loses the spans and does not delay the end") {
  std::string address;
  {
    Receiver gone;
    address = gone.address();
  }
  OtlpExporter exporter({.endpoint = address,
                         .service = "test",
                         .max_batch = 1,
                         .call_timeout = std::chrono::milliseconds(200),
                         .flush_timeout = std::chrono::milliseconds(50)});
  exporter.Add(Span("lost"));
  exporter.Stop();
  CHECK(exporter.n_dropped() == 1);
  CHECK(exporter.n_sent() == 0);
}

}  // namespace
}  // namespace stagecoach
