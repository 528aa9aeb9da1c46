#include "common/metrics/stage_collector.h"

#include <prometheus/text_serializer.h>

#include <catch2/catch_test_macros.hpp>
#include <set>

namespace stagecoach {
namespace {

v1::StatsResponse Stats() {
  v1::StatsResponse stats;
  stats.set_compute_ms(1500);
  stats.set_steps(7);
  stats.set_bubbles(3);
  stats.set_cpu_s(2.5);
  stats.set_stage(4);
  stats.mutable_hidden()->set_received_bytes(99);
  stats.mutable_tokens_channel()->set_sent_frames(6);
  stats.mutable_load()->set_read_ms(250);
  stats.mutable_memory()->set_kv_bytes(1 << 20);
  (*stats.mutable_memory()->mutable_weights())["INT4 in groups of 128"] = 4096;
  v1::Histogram& hops = *stats.mutable_hop_seconds();
  hops.add_bounds(0.001);
  hops.add_bounds(0.01);
  for (const uint64_t count : {2, 3, 1}) hops.add_counts(count);
  hops.set_sum(0.5);
  return stats;
}

std::string PageOf(std::vector<std::optional<v1::StatsResponse>> stages) {
  const StageCollector collector([stages] { return stages; }, {{"model_name", "m"}});
  return prometheus::TextSerializer().Serialize(collector.Collect());
}

TEST_CASE("the page shows stages that answer, and which stage does not") {
  const std::string page = PageOf({std::nullopt, Stats()});
  for (const char* line : {
           "stagecoach_stage_up{model_name=\"m\",stage=\"0\"} 0",
           "stagecoach_stage_up{model_name=\"m\",stage=\"1\"} 1",
           "# TYPE stagecoach_stage_seconds_total counter",
           "stagecoach_stage_seconds_total{model_name=\"m\",stage=\"1\",state=\"compute\"} 1.5",
           "stagecoach_stage_steps_total{model_name=\"m\",stage=\"1\"} 7",
           "stagecoach_stage_bubbles_total{model_name=\"m\",stage=\"1\"} 3",
           "stagecoach_stage_cpu_seconds_total{model_name=\"m\",stage=\"1\"} 2.5",
           "stagecoach_stage_channel_bytes_total{model_name=\"m\",stage=\"1\",channel=\"hidden\","
           "direction=\"received\"} 99",
           "stagecoach_stage_channel_messages_total{model_name=\"m\",stage=\"1\","
           "channel=\"tokens\",direction=\"sent\"} 6",
           "stagecoach_stage_hop_seconds_bucket{model_name=\"m\",stage=\"1\",le=\"0.01\"} 5",
           "stagecoach_stage_hop_seconds_bucket{model_name=\"m\",stage=\"1\",le=\"+Inf\"} 6",
           "stagecoach_stage_hop_seconds_sum{model_name=\"m\",stage=\"1\"} 0.5",
           "stagecoach_stage_memory_bytes{model_name=\"m\",stage=\"1\",kind=\"kv\"} 1048576",
           "stagecoach_stage_weights_bytes{model_name=\"m\",stage=\"1\",encoding=\"INT4 in groups "
           "of 128\"} 4096",
           "stagecoach_stage_load_seconds{model_name=\"m\",stage=\"1\",phase=\"read\"} 0.25",
       }) {
    INFO(page);
    CHECK(page.find(line) != std::string::npos);
  }
  CHECK(page.find("stagecoach_stage_steps_total{model_name=\"m\",stage=\"0\"}") ==
        std::string::npos);
}

TEST_CASE("every metric family appears once and has a help text") {
  const StageCollector collector([] { return std::vector{std::optional(Stats())}; }, {});
  std::set<std::string> names;
  for (const prometheus::MetricFamily& family : collector.Collect()) {
    INFO(family.name);
    CHECK(names.insert(family.name).second);
    CHECK_FALSE(family.help.empty());
    CHECK(family.name.ends_with("_total") == (family.type == prometheus::MetricType::Counter));
  }
  CHECK(names.size() >= 13);
}

TEST_CASE("an unknown field is skipped") {
  v1::StatsResponse stats = Stats();
  const std::string page = PageOf({stats});
  stats.GetReflection()->MutableUnknownFields(&stats)->AddVarint(1000, 7);
  v1::StatsResponse received;
  REQUIRE(received.ParseFromString(stats.SerializeAsString()));
  CHECK(PageOf({received}) == page);
}

TEST_CASE("a worker's own page has its stage number") {
  CHECK(PageOf({Stats()}).find("stagecoach_stage_up{model_name=\"m\",stage=\"4\"} 1") !=
        std::string::npos);
}

}  // namespace
}  // namespace stagecoach
