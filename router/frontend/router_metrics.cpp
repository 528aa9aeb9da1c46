#include "router/frontend/router_metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <chrono>
#include <utility>

#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/scheduler.h"

namespace stagecoach::router {
namespace {

constexpr auto kScrapeTimeout = std::chrono::seconds(1);

// The buckets of vLLM, since the metrics have its names: quantiles over both kinds of servers need
// equal buckets.
const prometheus::Histogram::BucketBoundaries kFirstTokenBuckets = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25, 0.5,   0.75,
    1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160., 640.0, 2560.0};
const prometheus::Histogram::BucketBoundaries kInterTokenBuckets = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,  0.4, 0.5,
    0.75, 1.0,   2.5,  5.0,   7.5, 10.,  20., 40.0, 80.0};
const prometheus::Histogram::BucketBoundaries kRequestBuckets = {
    0.3,  0.5,  0.8,  1.0,  1.5,  2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
    30.0, 40.0, 50.0, 60.0, 120., 240.0, 480.0, 960.0, 1920.0, 7680.0};
// On a GPU, a token takes less time than vLLM's first bucket covers.
const prometheus::Histogram::BucketBoundaries kFineInterTokenBuckets = {
    0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03,
    0.04,  0.06,  0.08,  0.1,   0.15,  0.2,   0.3,  0.5,   1.0,  2.5};

prometheus::MetricFamily Family(std::string name, std::string help, prometheus::MetricType type) {
  prometheus::MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  return family;
}

}  // namespace

std::string EngineOf(size_t replica) { return fmt::format("{}", replica); }

RouterMetrics::RouterMetrics(const std::string& model_name)
    : registry_(std::make_shared<prometheus::Registry>()) {
  const prometheus::Labels labels = {{"model_name", model_name}, {"engine", EngineOf(0)}};
  const auto histogram = [&](const char* name, const char* help, const auto& buckets) {
    return &prometheus::BuildHistogram()
                .Name(name)
                .Help(help)
                .Labels(labels)
                .Register(*registry_)
                .Add({}, buckets);
  };
  time_to_first_token_ =
      histogram("vllm:time_to_first_token_seconds",
                "Time from a request's arrival to its first token", kFirstTokenBuckets);
  inter_token_ = histogram("vllm:inter_token_latency_seconds",
                           "Time between two tokens of one choice", kInterTokenBuckets);
  fine_inter_token_ =
      histogram("stagecoach_inter_token_seconds",
                "Time between two tokens of one choice, in finer buckets", kFineInterTokenBuckets);
  queue_ =
      histogram("vllm:request_queue_time_seconds",
                "Time from a request's arrival in the queue to its first step", kRequestBuckets);
  e2e_ = histogram("vllm:e2e_request_latency_seconds", "Time from a request's arrival to its end",
                   kRequestBuckets);
  auto& ends = prometheus::BuildCounter()
                   .Name("vllm:request_success_total")
                   .Help("Requests that ended, by reason")
                   .Labels(labels)
                   .Register(*registry_);
  int i = 0;
  for (const char* reason : {"stop", "length", "abort"}) {
    ends_[i++] = &ends.Add({{"finished_reason", reason}});
  }
  tenant_requests_ = &prometheus::BuildCounter()
                          .Name("stagecoach_tenant_requests_total")
                          .Help("Requests accepted, by tenant of the API key")
                          .Register(*registry_);
  auto& refused = prometheus::BuildCounter()
                      .Name("stagecoach_requests_refused_total")
                      .Help(
                          "Requests refused, by reason: full (a queue is full) or ending (the "
                          "server shuts down)")
                      .Labels(labels)
                      .Register(*registry_);
  refused_full_ = &refused.Add({{"reason", "full"}});
  refused_ending_ = &refused.Add({{"reason", "ending"}});
  auto& queued = prometheus::BuildGauge()
                     .Name("stagecoach_preparing_requests")
                     .Help(
                         "Requests that wait to be tokenized (prompts), or to be tokenized and "
                         "have their grammar compiled (grammars)")
                     .Labels(labels)
                     .Register(*registry_);
  i = 0;
  for (const char* queue : {"prompts", "grammars"}) queued_[i++] = &queued.Add({{"queue", queue}});
  const auto gauge = [&](const char* name, const char* help) {
    return &prometheus::BuildGauge()
                .Name(name)
                .Help(help)
                .Labels(labels)
                .Register(*registry_)
                .Add({});
  };
  const auto counter = [&](const char* name, const char* help) {
    return &prometheus::BuildCounter()
                .Name(name)
                .Help(help)
                .Labels(labels)
                .Register(*registry_)
                .Add({});
  };
  streams_ = gauge("stagecoach_resumable_streams", "Resumable streams that are running or kept");
  stream_bytes_ = gauge("stagecoach_resumable_stream_bytes", "Bytes kept for resumable streams");
  streams_resumed_ =
      counter("stagecoach_streams_resumed_total", "Times that a client resumed a stream");
  streams_dropped_ = counter("stagecoach_streams_dropped_total",
                             "Times that a resumable stream, or its beginning, was dropped because "
                             "memory or places ran out");
}

void RouterMetrics::CountRefused(absl::StatusCode code) const {
  if (code == absl::StatusCode::kResourceExhausted) refused_full_->Increment();
  if (code == absl::StatusCode::kUnavailable) refused_ending_->Increment();
}

void RouterMetrics::CountTenantRequest(const std::string& tenant) const {
  tenant_requests_->Add({{"tenant", tenant}}).Increment();
}

void RouterMetrics::AddQueued(Queue queue, int n) const {
  queued_[static_cast<int>(queue)]->Increment(n);
}

void RouterMetrics::SetStreams(size_t n_streams, size_t n_bytes) const {
  streams_->Set(static_cast<double>(n_streams));
  stream_bytes_->Set(static_cast<double>(n_bytes));
}

void RouterMetrics::CountStreamResumed() const { streams_resumed_->Increment(); }

void RouterMetrics::CountStreamDropped() const { streams_dropped_->Increment(); }

void RouterMetrics::ObserveFirstToken(double seconds) const {
  time_to_first_token_->Observe(seconds);
}

void RouterMetrics::ObserveQueue(double seconds) const { queue_->Observe(seconds); }

void RouterMetrics::ObserveInterToken(double seconds) const {
  inter_token_->Observe(seconds);
  fine_inter_token_->Observe(seconds);
}

void RouterMetrics::ObserveEnd(End end, double e2e_seconds) const {
  ends_[static_cast<int>(end)]->Increment();
  e2e_->Observe(e2e_seconds);
}

SchedulerCollector::SchedulerCollector(Scheduler* scheduler, std::string model_name,
                                       std::string engine)
    : model_name_(std::move(model_name)), engine_(std::move(engine)), scheduler_(scheduler) {}

void SchedulerCollector::Detach() {
  MutexLock lock(mutex_);
  scheduler_ = nullptr;
}

std::vector<prometheus::MetricFamily> SchedulerCollector::Collect() const {
  MutexLock lock(mutex_);
  if (scheduler_ == nullptr) return {};
  std::future<SchedulerSnapshot> future = scheduler_->Snapshot();
  if (future.wait_for(kScrapeTimeout) != std::future_status::ready) return {};
  const SchedulerSnapshot snapshot = future.get();

  std::vector<prometheus::MetricFamily> families;
  const auto metric = [&](std::vector<prometheus::ClientMetric::Label> labels = {}) {
    prometheus::ClientMetric one;
    one.label = {{"model_name", model_name_}, {"engine", engine_}};
    one.label.insert(one.label.end(), labels.begin(), labels.end());
    return one;
  };
  const auto gauge = [&](const char* name, const char* help, double value) {
    families.push_back(Family(name, help, prometheus::MetricType::Gauge));
    families.back().metric.push_back(metric());
    families.back().metric.back().gauge.value = value;
  };
  const auto counter = [&](const char* name, const char* help, double value) {
    families.push_back(Family(name, help, prometheus::MetricType::Counter));
    families.back().metric.push_back(metric());
    families.back().metric.back().counter.value = value;
  };
  gauge("vllm:num_requests_running", "Sequences that hold KV blocks", snapshot.running);
  gauge("vllm:num_requests_waiting", "Sequences not yet admitted", snapshot.waiting);
  families.push_back(
      Family("stagecoach_queue_requests",
             "Sequences not yet admitted, by priority: high (below 0), normal (0) or low (above 0)",
             prometheus::MetricType::Gauge));
  const auto queue = [&](const char* priority, int32_t n) {
    families.back().metric.push_back(metric({{"priority", priority}}));
    families.back().metric.back().gauge.value = n;
  };
  queue("high", snapshot.waiting_high);
  queue("normal", snapshot.waiting - snapshot.waiting_high - snapshot.waiting_low);
  queue("low", snapshot.waiting_low);
  uint64_t n_blocks = 0;
  double usage = 0;
  for (const auto& group : snapshot.kv) {
    n_blocks += group.total_blocks;
    if (group.total_blocks == 0) continue;
    usage = std::max(usage, 1.0 - double(group.free_blocks) / double(group.total_blocks));
  }
  gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use in the fullest KV group, 0 to 1",
        usage);
  families.push_back(Family("vllm:cache_config_info",
                            "Configuration of the KV cache, in the labels; always 1",
                            prometheus::MetricType::Gauge));
  families.back().metric.push_back(
      metric({{"block_size", fmt::format("{}", kBlockTokens)},
              {"num_gpu_blocks", fmt::format("{}", n_blocks)},
              {"enable_prefix_caching", snapshot.prefix_cache ? "True" : "False"}}));
  families.back().metric.back().gauge.value = 1;
  counter("vllm:prompt_tokens_total", "Prompt tokens computed", snapshot.prompt_tokens);
  counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache",
          snapshot.prefix_queries);
  counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache",
          snapshot.prefix_hits);
  counter("stagecoach_kv_store_hits_total",
          "Prompt tokens that came from the KV store; vllm:prefix_cache_hits_total does not count "
          "them",
          snapshot.kv_store_hits);
  counter("stagecoach_kv_store_saves_total",
          "KV blocks that the stages were told to save to the KV store", snapshot.kv_saves);
  gauge("stagecoach_loading_requests",
        "Waiting sequences for which the stages fetch blocks from the KV store", snapshot.loading);
  counter("vllm:generation_tokens_total", "Tokens generated", snapshot.generated_tokens);
  counter("vllm:num_preemptions_total", "Sequences preempted", snapshot.preemptions);
  counter("stagecoach_share_preemptions_total",
          "Sequences preempted in favour of a tenant below its fair share",
          snapshot.share_preemptions);
  counter("stagecoach_queue_evictions_total",
          "Sequences evicted from a full queue in favour of a tenant below its fair share",
          snapshot.evicted);
  families.push_back(
      Family("stagecoach_tenant_tokens_total",
             "Tokens prefilled and decoded, by tenant of the API key; \"\": requests without a key",
             prometheus::MetricType::Counter));
  for (const auto& tenant : snapshot.tenants) {
    families.back().metric.push_back(metric({{"tenant", tenant.name}}));
    families.back().metric.back().counter.value = static_cast<double>(tenant.computed_tokens);
  }
  gauge("stagecoach_microbatches_in_flight", "Steps sent to stage 0 whose results have not arrived",
        snapshot.in_flight);
  counter("stagecoach_steps_total", "Steps planned", snapshot.steps);
  counter("stagecoach_in_flight_seconds_total", "Time with at least one step in flight",
          snapshot.in_flight_ms / 1000);

  families.push_back(Family("stagecoach_kv_blocks", "KV blocks by window (0: full) and state",
                            prometheus::MetricType::Gauge));
  for (const auto& group : snapshot.kv) {
    const std::string window = fmt::format("{}", group.window);
    const auto add = [&](const char* state, uint64_t n) {
      families.back().metric.push_back(metric({{"window", window}, {"state", state}}));
      families.back().metric.back().gauge.value = static_cast<double>(n);
    };
    add("free", group.free_blocks);
    add("used", group.total_blocks - group.free_blocks);
  }
  return families;
}

}  // namespace stagecoach::router
