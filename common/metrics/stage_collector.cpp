#include "common/metrics/stage_collector.h"

#include <fmt/format.h>
#include <prometheus/metric_family.h>

#include <limits>

namespace stagecoach {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Stats = v1::StatsResponse;
using ExtraLabel = std::pair<const char*, const char*>;

// Builds metric families. Each family has one metric per stage that answers.
class Page {
 public:
  Page(const StageCollector::Labels& labels, const std::vector<std::optional<Stats>>& stages)
      : labels_(labels), stages_(stages) {}

  void Begin(const char* name, const char* help, MetricType type) {
    MetricFamily& family = families_.emplace_back();
    family.name = name;
    family.help = help;
    family.type = type;
  }

  // Adds one metric per answering stage; `value` extracts it from Stats.
  template <typename Value>
  void Add(const Value& value, std::initializer_list<ExtraLabel> extra = {}) {
    for (size_t i = 0; i < stages_.size(); ++i) {
      if (stages_[i]) Set(NewMetric(i, extra), value(*stages_[i]));
    }
  }

  ClientMetric& NewMetric(size_t stage, std::initializer_list<ExtraLabel> extra = {}) {
    ClientMetric& metric = families_.back().metric.emplace_back();
    for (const auto& [name, value] : labels_) metric.label.push_back({name, value});
    // A worker reports only itself, so its own stage number is used.
    const bool alone = stages_.size() == 1 && stages_[0];
    metric.label.push_back({"stage", fmt::format("{}", alone ? stages_[0]->stage() : stage)});
    for (const auto& [name, value] : extra) metric.label.push_back({name, value});
    return metric;
  }

  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  void Set(ClientMetric& metric, double value) {
    if (families_.back().type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
  }

  const StageCollector::Labels& labels_;
  const std::vector<std::optional<Stats>>& stages_;
  std::vector<MetricFamily> families_;
};

void AddTimes(Page& page) {
  page.Begin(
      "stagecoach_stage_seconds_total",
      "Time of the stage's compute thread, by state; it is in exactly one state at any moment",
      MetricType::Counter);
  page.Add([](const Stats& s) { return s.compute_ms() / 1e3; }, {{"state", "compute"}});
  page.Add([](const Stats& s) { return s.wait_input_ms() / 1e3; }, {{"state", "wait_input"}});
  page.Add([](const Stats& s) { return s.wait_mask_ms() / 1e3; }, {{"state", "wait_mask"}});
  page.Add([](const Stats& s) { return s.wait_send_ms() / 1e3; }, {{"state", "wait_send"}});
  page.Add([](const Stats& s) { return s.idle_ms() / 1e3; }, {{"state", "idle"}});
}

void AddCounts(Page& page) {
  const auto counter = [&](const char* name, const char* help, const auto& value) {
    page.Begin(name, help, MetricType::Counter);
    page.Add(value);
  };
  counter("stagecoach_stage_steps_total", "Steps computed",
          [](const Stats& s) { return static_cast<double>(s.steps()); });
  counter("stagecoach_stage_tokens_total", "Rows computed",
          [](const Stats& s) { return static_cast<double>(s.tokens()); });
  counter("stagecoach_stage_bubbles_total",
          "Pipeline bubbles: steps that the stage waited for with nothing else to do",
          [](const Stats& s) { return static_cast<double>(s.bubbles()); });
  counter("stagecoach_stage_metadata_late_steps_total",
          "Steps whose hidden states arrived before their metadata was ready",
          [](const Stats& s) { return static_cast<double>(s.metadata_late_steps()); });
}

void AddChannels(Page& page) {
  const auto family = [&](const char* name, const char* help, const auto& sent,
                          const auto& received) {
    page.Begin(name, help, MetricType::Counter);
    const auto channel = [&](const char* channel_name, const auto& of) {
      page.Add([&](const Stats& s) { return static_cast<double>(sent(of(s))); },
               {{"channel", channel_name}, {"direction", "sent"}});
      page.Add([&](const Stats& s) { return static_cast<double>(received(of(s))); },
               {{"channel", channel_name}, {"direction", "received"}});
    };
    channel("metadata", [](const Stats& s) -> const v1::ChannelStats& { return s.metadata(); });
    channel("hidden", [](const Stats& s) -> const v1::ChannelStats& { return s.hidden(); });
    channel("tokens", [](const Stats& s) -> const v1::ChannelStats& { return s.tokens_channel(); });
  };
  family(
      "stagecoach_stage_channel_bytes_total", "Bytes sent to and received from neighbour stages",
      [](const v1::ChannelStats& c) { return c.sent_bytes(); },
      [](const v1::ChannelStats& c) { return c.received_bytes(); });
  family(
      "stagecoach_stage_channel_messages_total",
      "Messages sent to and received from neighbour stages; between GPUs each message is one NCCL "
      "call",
      [](const v1::ChannelStats& c) { return c.sent_frames(); },
      [](const v1::ChannelStats& c) { return c.received_frames(); });
}

void AddHops(Page& page, const std::vector<std::optional<Stats>>& stages) {
  page.Begin("stagecoach_stage_hop_seconds",
             "Time of hidden states from one stage to the next, only if they pass through the "
             "host; between machines only as accurate as their clocks agree",
             MetricType::Histogram);
  for (size_t i = 0; i < stages.size(); ++i) {
    if (!stages[i] || !stages[i]->has_hop_seconds()) continue;
    const v1::Histogram& hops = stages[i]->hop_seconds();
    prometheus::ClientMetric::Histogram& histogram = page.NewMetric(i).histogram;
    uint64_t count = 0;
    for (int b = 0; b < hops.counts_size(); ++b) {
      count += hops.counts(b);
      const double bound =
          b < hops.bounds_size() ? hops.bounds(b) : std::numeric_limits<double>::infinity();
      histogram.bucket.push_back({.cumulative_count = count, .upper_bound = bound});
    }
    histogram.sample_count = count;
    histogram.sample_sum = hops.sum();
  }
}

void AddState(Page& page) {
  page.Begin("stagecoach_stage_slots_in_use", "Sequences that have a slot on the stage",
             MetricType::Gauge);
  page.Add([](const Stats& s) { return static_cast<double>(s.slots_in_use()); });
  page.Begin("stagecoach_stage_memory_bytes", "Memory of the stage, by kind", MetricType::Gauge);
  page.Add([](const Stats& s) { return static_cast<double>(s.memory().weights_bytes()); },
           {{"kind", "weights"}});
  page.Add([](const Stats& s) { return static_cast<double>(s.memory().scratch_bytes()); },
           {{"kind", "scratch"}});
  page.Add([](const Stats& s) { return static_cast<double>(s.memory().kv_bytes()); },
           {{"kind", "kv"}});
  page.Begin("stagecoach_stage_load_seconds", "Duration of the last load, by phase",
             MetricType::Gauge);
  page.Add([](const Stats& s) { return s.load().read_ms() / 1e3; }, {{"phase", "read"}});
  page.Add([](const Stats& s) { return s.load().profile_ms() / 1e3; }, {{"phase", "profile"}});
  page.Add([](const Stats& s) { return s.load().prepare_ms() / 1e3; }, {{"phase", "prepare"}});
  page.Add([](const Stats& s) { return s.load().connect_ms() / 1e3; }, {{"phase", "connect"}});
  page.Begin("stagecoach_stage_start_time_seconds",
             "Start of the worker's process, Unix time; each change is a restart",
             MetricType::Gauge);
  page.Add([](const Stats& s) { return s.started_unix_s(); });
}

}  // namespace

void StageCollector::Detach() {
  MutexLock lock(mutex_);
  source_ = nullptr;
}

std::vector<MetricFamily> StageCollector::Collect() const {
  MutexLock lock(mutex_);
  if (source_ == nullptr) return {};
  const std::vector<std::optional<Stats>> stages = source_();
  Page page(labels_, stages);
  page.Begin("stagecoach_stage_up", "1 if the stage answers, else 0", MetricType::Gauge);
  for (size_t i = 0; i < stages.size(); ++i) page.NewMetric(i).gauge.value = stages[i] ? 1 : 0;
  AddTimes(page);
  AddCounts(page);
  AddChannels(page);
  AddHops(page, stages);
  AddState(page);
  return page.Take();
}

}  // namespace stagecoach
