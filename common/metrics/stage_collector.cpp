#include "common/metrics/stage_collector.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <prometheus/metric_family.h>

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace stagecoach {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = StageCollector::Labels;
using Stats = v1::StatsResponse;

double NumberIn(const Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(reflection.GetUInt64(message, field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.GetUInt32(message, field);
    default:
      SC_CHECK(!"a metric of a field type that is not handled here");
      return 0;
  }
}

// Builds metric families. Each family has one metric per stage that answers.
class Page {
 public:
  Page(const Labels& labels, const std::vector<std::optional<Stats>>& stages)
      : labels_(labels), stages_(stages) {}

  void AddUp() {
    MetricFamily& family =
        FamilyOf("stagecoach_stage_up", "1 if the stage answers, else 0", MetricType::Gauge);
    for (size_t i = 0; i < stages_.size(); ++i) {
      NewMetric(family, i, {}).gauge.value = stages_[i] ? 1 : 0;
    }
  }

  void AddStats() {
    std::vector<const Message*> stats;
    stats.reserve(stages_.size());
    for (const auto& stage : stages_) stats.push_back(stage ? &*stage : nullptr);
    AddFields(Stats::descriptor(), stats, {});
  }

  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  // Adds the fields of `type` that are metrics. `messages`: per stage; null if it does not answer.
  // Every metric gets the labels `outer`.
  void AddFields(const google::protobuf::Descriptor* type,
                 const std::vector<const Message*>& messages, const Labels& outer) {
    for (int f = 0; f < type->field_count(); ++f) {
      const FieldDescriptor* field = type->field(f);
      if (!field->options().HasExtension(v1::metric)) continue;
      const v1::Metric& metric = field->options().GetExtension(v1::metric);
      Labels extra = outer;
      if (metric.has_label()) extra.emplace_back(metric.label().name(), metric.label().value());
      if (field->is_map()) {
        AddMap(field, metric, messages, outer);
      } else if (field->message_type() == v1::Histogram::descriptor()) {
        AddHistograms(field, metric, messages, extra);
      } else if (field->message_type() != nullptr) {
        std::vector<const Message*> inner;
        inner.reserve(messages.size());
        for (const Message* message : messages) {
          inner.push_back(message == nullptr
                              ? nullptr
                              : &message->GetReflection()->GetMessage(*message, field));
        }
        AddFields(field->message_type(), inner, extra);
      } else {
        AddNumbers(field, metric, messages, extra);
      }
    }
  }

  void AddNumbers(const FieldDescriptor* field, const v1::Metric& metric,
                  const std::vector<const Message*>& messages, const Labels& extra) {
    MetricFamily& family =
        FamilyOf(metric.name(), metric.help(),
                 metric.type() == v1::Metric::COUNTER ? MetricType::Counter : MetricType::Gauge);
    const double scale = metric.scale() == 0 ? 1 : metric.scale();
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i] == nullptr) continue;
      const double value = NumberIn(*messages[i], field) * scale;
      ClientMetric& of_stage = NewMetric(family, i, extra);
      if (family.type == MetricType::Counter) {
        of_stage.counter.value = value;
      } else {
        of_stage.gauge.value = value;
      }
    }
  }

  // A series for each key of a map<string, uint64>.
  void AddMap(const FieldDescriptor* field, const v1::Metric& metric,
              const std::vector<const Message*>& messages, const Labels& outer) {
    const FieldDescriptor* const key = field->message_type()->map_key();
    const FieldDescriptor* const number = field->message_type()->map_value();
    MetricFamily& family = FamilyOf(metric.name(), metric.help(), MetricType::Gauge);
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i] == nullptr) continue;
      const Reflection& reflection = *messages[i]->GetReflection();
      for (int n = 0; n < reflection.FieldSize(*messages[i], field); ++n) {
        const Message& entry = reflection.GetRepeatedMessage(*messages[i], field, n);
        Labels extra = outer;
        extra.emplace_back(metric.label().name(), entry.GetReflection()->GetString(entry, key));
        NewMetric(family, i, extra).gauge.value = NumberIn(entry, number);
      }
    }
  }

  // A stage without the field has no such metric.
  void AddHistograms(const FieldDescriptor* field, const v1::Metric& metric,
                     const std::vector<const Message*>& messages, const Labels& extra) {
    MetricFamily& family = FamilyOf(metric.name(), metric.help(), MetricType::Histogram);
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i] == nullptr) continue;
      const Reflection& reflection = *messages[i]->GetReflection();
      if (!reflection.HasField(*messages[i], field)) continue;
      const auto& from =
          static_cast<const v1::Histogram&>(reflection.GetMessage(*messages[i], field));
      ClientMetric::Histogram& histogram = NewMetric(family, i, extra).histogram;
      uint64_t count = 0;
      for (int b = 0; b < from.counts_size(); ++b) {
        count += from.counts(b);
        const double bound =
            b < from.bounds_size() ? from.bounds(b) : std::numeric_limits<double>::infinity();
        histogram.bucket.push_back({.cumulative_count = count, .upper_bound = bound});
      }
      histogram.sample_count = count;
      histogram.sample_sum = from.sum();
    }
  }

  // Help and type are those of the family's first field. Invalidates earlier references.
  MetricFamily& FamilyOf(const std::string& name, const std::string& help, MetricType type) {
    const auto known = std::find_if(families_.begin(), families_.end(),
                                    [&](const auto& family) { return family.name == name; });
    if (known != families_.end()) return *known;
    MetricFamily& family = families_.emplace_back();
    family.name = name;
    family.help = help;
    family.type = type;
    return family;
  }

  ClientMetric& NewMetric(MetricFamily& family, size_t stage, const Labels& extra) {
    ClientMetric& metric = family.metric.emplace_back();
    for (const auto& [name, value] : labels_) metric.label.push_back({name, value});
    // A worker reports only itself, so its own stage number is used.
    if (const auto& first = stages_.front(); first && stages_.size() == 1) stage = first->stage();
    metric.label.push_back({"stage", fmt::format("{}", stage)});
    for (const auto& [name, value] : extra) metric.label.push_back({name, value});
    return metric;
  }

  const Labels& labels_;
  const std::vector<std::optional<Stats>>& stages_;
  std::vector<MetricFamily> families_;
};

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
  page.AddUp();
  page.AddStats();
  return page.Take();
}

}  // namespace stagecoach
