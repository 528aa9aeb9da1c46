#include "router/frontend/router_metrics.h"

#include <prometheus/text_serializer.h>

#include <string>

#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/scheduler.h"
#include "router/scheduler/testing/fake_stage_client.h"

namespace stagecoach::router {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

TEST_CASE("the scheduler's metrics are on the page as long as the scheduler exists") {
  SchedulerConfig config;
  config.kv_groups = {{.window = 0, .n_blocks = 200}, {.window = 64, .n_blocks = 100}};
  FakeStageClient pipeline(config);
  auto scheduler = *Scheduler::Start(config, &pipeline);
  SchedulerCollector collector(scheduler.get(), "m", EngineOf(0));
  const std::string page = prometheus::TextSerializer().Serialize(collector.Collect());
  for (const char* line :
       {"vllm:num_requests_running{model_name=\"m\",engine=\"0\"} 0",
        "vllm:num_requests_waiting{model_name=\"m\",engine=\"0\"} 0",
        "stagecoach_queue_requests{model_name=\"m\",engine=\"0\",priority=\"high\"} 0",
        "vllm:cache_config_info{model_name=\"m\",engine=\"0\",block_size=\"16\",num_gpu_blocks="
        "\"300\",",
        "enable_prefix_caching=\"True\"} 1",
        "vllm:prefix_cache_hits_total{model_name=\"m\",engine=\"0\"} 0",
        "vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0",
        "# TYPE vllm:prompt_tokens_total counter",
        "vllm:generation_tokens_total{model_name=\"m\",engine=\"0\"} 0",
        "vllm:num_preemptions_total{model_name=\"m\",engine=\"0\"} 0",
        "stagecoach_share_preemptions_total{model_name=\"m\",engine=\"0\"} 0",
        "stagecoach_queue_evictions_total{model_name=\"m\",engine=\"0\"} 0",
        "# TYPE stagecoach_tenant_tokens_total counter",
        "stagecoach_kv_blocks{model_name=\"m\",engine=\"0\",window=\"64\",state=\"free\"} 100"}) {
    Contains(page, line);
  }
  collector.Detach();
  CHECK(collector.Collect().empty());
}

TEST_CASE("latencies and finished requests are counted") {
  const RouterMetrics metrics("m");
  metrics.ObserveFirstToken(0.02);
  metrics.ObserveQueue(0.4);
  metrics.ObserveInterToken(0.003);
  metrics.ObserveEnd(RouterMetrics::End::kStop, 1.0);
  const std::string page = prometheus::TextSerializer().Serialize(metrics.collectable()->Collect());
  Contains(page, "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"m\"} 1");
  Contains(page, "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"m\"} 1");
  Contains(page,
           "stagecoach_inter_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.003\"} 1");
  Contains(page,
           "vllm:request_queue_time_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.5\"} 1");
  Contains(page, "vllm:e2e_request_latency_seconds_count{engine=\"0\",model_name=\"m\"} 1");
  Contains(page,
           "vllm:request_success_total{engine=\"0\",model_name=\"m\",finished_reason=\"stop\"} 1");
}

TEST_CASE("refusals are counted by reason, not as finished requests") {
  const RouterMetrics metrics("m");
  metrics.CountRefused(absl::StatusCode::kResourceExhausted);
  metrics.CountRefused(absl::StatusCode::kUnavailable);
  metrics.CountRefused(absl::StatusCode::kInvalidArgument);
  const std::string page = prometheus::TextSerializer().Serialize(metrics.collectable()->Collect());
  const std::string name =
      "stagecoach_requests_refused_total{engine=\"0\",model_name=\"m\",reason=";
  Contains(page, name + "\"full\"} 1");
  Contains(page, name + "\"ending\"} 1");
  Contains(page, "finished_reason=\"abort\"} 0");
}

TEST_CASE("requests that wait for a thread are shown by queue") {
  const RouterMetrics metrics("m");
  metrics.AddQueued(RouterMetrics::Queue::kPrompts, 1);
  metrics.AddQueued(RouterMetrics::Queue::kGrammars, 1);
  metrics.AddQueued(RouterMetrics::Queue::kGrammars, 1);
  metrics.AddQueued(RouterMetrics::Queue::kPrompts, -1);
  const std::string page = prometheus::TextSerializer().Serialize(metrics.collectable()->Collect());
  const std::string name = "stagecoach_preparing_requests{engine=\"0\",model_name=\"m\",queue=";
  Contains(page, name + "\"prompts\"} 0");
  Contains(page, name + "\"grammars\"} 2");
}

}  // namespace
}  // namespace stagecoach::router
