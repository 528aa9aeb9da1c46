#include "common/trace/otlp_exporter.h"

#include <prometheus/metric_family.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/rpc/server.h"
#include "common/version.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace stagecoach {
namespace {

namespace otlp = opentelemetry::proto::collector::trace::v1;

constexpr auto kWarningInterval = std::chrono::minutes(1);
constexpr int kMaxMessageBytes = 4 << 20;

template <typename Id>
std::string Bytes(const Id& id) {
  return {reinterpret_cast<const char*>(id.data()), id.size()};
}

void Fill(const TraceSpan::Attribute& attribute, otlp::KeyValue* out) {
  out->set_key(attribute.first);
  otlp::AnyValue& value = *out->mutable_value();
  if (const auto* text = std::get_if<std::string>(&attribute.second)) {
    value.set_string_value(*text);
  } else if (const auto* whole = std::get_if<int64_t>(&attribute.second)) {
    value.set_int_value(*whole);
  } else {
    value.set_double_value(std::get<double>(attribute.second));
  }
}

void Fill(const TraceSpan& span, otlp::Span* out) {
  out->set_trace_id(Bytes(span.trace_id));
  out->set_span_id(Bytes(span.span_id));
  if (span.parent) out->set_parent_span_id(Bytes(*span.parent));
  out->set_name(span.name);
  out->set_kind(span.is_server ? otlp::Span::SPAN_KIND_SERVER : otlp::Span::SPAN_KIND_INTERNAL);
  out->set_start_time_unix_nano(span.begin_unix_ns);
  out->set_end_time_unix_nano(std::max(span.begin_unix_ns, span.end_unix_ns));
  for (const auto& attribute : span.attributes) Fill(attribute, out->add_attributes());
  if (!span.error.empty()) {
    out->mutable_status()->set_code(otlp::Status::STATUS_CODE_ERROR);
    out->mutable_status()->set_message(span.error);
  }
}

class TraceMetrics final : public prometheus::Collectable {
 public:
  explicit TraceMetrics(std::shared_ptr<OtlpExporter> exporter) : exporter_(std::move(exporter)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    prometheus::MetricFamily family;
    family.name = "stagecoach_trace_spans_total";
    family.help = "Spans for the OTLP receiver, by result: sent or dropped";
    family.type = prometheus::MetricType::Counter;
    const auto add = [&family](const char* result, uint64_t n) {
      prometheus::ClientMetric& metric = family.metric.emplace_back();
      metric.label = {{"result", result}};
      metric.counter.value = static_cast<double>(n);
    };
    add("sent", exporter_->n_sent());
    add("dropped", exporter_->n_dropped());
    return {family};
  }

 private:
  const std::shared_ptr<OtlpExporter> exporter_;
};

}  // namespace

class OtlpExporter::Client {
 public:
  explicit Client(const OtlpOptions& options)
      : stub_(otlp::TraceService::NewStub(MakeChannel(options.endpoint, kMaxMessageBytes))) {
    otlp::ResourceSpans& spans = *request_.add_resource_spans();
    Fill({"service.name", options.service}, spans.mutable_resource()->add_attributes());
    Fill({"service.version", kVersion}, spans.mutable_resource()->add_attributes());
    for (const auto& attribute : options.resource) {
      Fill(attribute, spans.mutable_resource()->add_attributes());
    }
    spans.add_scope_spans()->mutable_scope()->set_name("stagecoach");
  }

  grpc::Status Export(const std::vector<TraceSpan>& spans, std::chrono::milliseconds timeout) {
    otlp::ScopeSpans& scope = *request_.mutable_resource_spans(0)->mutable_scope_spans(0);
    scope.clear_spans();
    for (const TraceSpan& span : spans) Fill(span, scope.add_spans());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    otlp::ExportTraceServiceResponse response;
    return stub_->Export(&context, request_, &response);
  }

 private:
  const std::unique_ptr<otlp::TraceService::Stub> stub_;
  otlp::ExportTraceServiceRequest request_;  // fixed parts, plus the spans of the last call
};

OtlpExporter::OtlpExporter(OtlpOptions options)
    : options_(std::move(options)),
      client_(std::make_unique<Client>(options_)),
      thread_([this] { Run(); }) {}

OtlpExporter::~OtlpExporter() { Stop(); }

void OtlpExporter::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void OtlpExporter::Add(TraceSpan span) {
  {
    MutexLock lock(mutex_);
    if (stopping_ || queued_.size() >= options_.max_queued) {
      ++n_dropped_;
      return;
    }
    queued_.push_back(std::move(span));
    if (queued_.size() < options_.max_batch) return;
  }
  wake_.notify_one();
}

void OtlpExporter::Run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, options_.batch_time, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || queued_.size() >= options_.max_batch;
    });
    if (stopping_ || queued_.empty()) continue;
    std::vector<TraceSpan> batch = std::exchange(queued_, {});
    lock.unlock();
    Send(std::move(batch), options_.call_timeout);
    lock.lock();
  }
  std::vector<TraceSpan> rest = std::exchange(queued_, {});
  lock.unlock();
  if (!rest.empty()) Send(std::move(rest), options_.flush_timeout);
}

void OtlpExporter::Send(std::vector<TraceSpan> spans, std::chrono::milliseconds timeout) {
  const grpc::Status status = client_->Export(spans, timeout);
  if (status.ok()) {
    n_sent_ += spans.size();
    return;
  }
  n_dropped_ += spans.size();
  if (std::chrono::steady_clock::now() < next_warning_) return;
  next_warning_ = std::chrono::steady_clock::now() + kWarningInterval;
  spdlog::warn("traces: {} spans did not reach {}: {}", spans.size(), options_.endpoint,
               status.error_message());
}

std::shared_ptr<prometheus::Collectable> MakeTraceMetrics(std::shared_ptr<OtlpExporter> exporter) {
  return std::make_shared<TraceMetrics>(std::move(exporter));
}

}  // namespace stagecoach
