#include "cli/timeline/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace stagecoach::timeline {
namespace {

using Place = std::pair<FlightRole, uint32_t>;  // the order puts the router before the stages

std::string LaneName(const FlightLog& log) {
  return log.role == FlightRole::kRouter ? "router" : fmt::format("stage {}", log.stage);
}

// The first time of a step; 0: none is known.
int64_t BeginOf(const FlightLog& log, const FlightStep& step) {
  const bool recovers = log.role == FlightRole::kRouter && step.at(kFlightLost) != 0;
  return recovers ? step.at(kFlightLost) : step.at(FlightTime::kKnown);
}

// Adds the spans of one step. A span whose end was not recorded ends when the file was written.
void AddSpans(const FlightLog& log, const FlightStep& step, int64_t start_ns,
              std::vector<Span>* spans) {
  const auto add = [&](Doing doing, int64_t begin, int64_t end) {
    if (begin == 0) return;
    Span span{.step = step.step,
              .doing = doing,
              .n_prefill_tokens = step.n_prefill_tokens,
              .n_decode_tokens = step.n_decode_tokens,
              .begin_ns = begin - start_ns,
              .end_ns = (end == 0 ? log.written_unix_ns : end) - start_ns,
              .open = end == 0};
    // written_unix_ns may be slightly earlier than the time recorded in the step.
    span.end_ns = std::max(span.end_ns, span.begin_ns);
    spans->push_back(span);
  };
  if (log.role == FlightRole::kRouter) {
    add(Doing::kRecover, step.at(kFlightLost), step.at(kFlightRejoined));
    add(Doing::kDispatch, step.at(kFlightPlanned), step.at(kFlightDispatched));
    add(Doing::kInFlight, step.at(kFlightDispatched), step.at(kFlightResult));
    return;
  }
  add(Doing::kWaitInput, step.at(FlightTime::kBegan), step.at(FlightTime::kInput));
  add(Doing::kCompute, step.at(FlightTime::kInput), step.at(FlightTime::kComputed));
  add(Doing::kSend, step.at(FlightTime::kComputed), step.at(FlightTime::kSent));
}

}  // namespace

const char* Name(Doing doing) {
  switch (doing) {
    case Doing::kDispatch:
      return "dispatch";
    case Doing::kInFlight:
      return "in flight";
    case Doing::kRecover:
      return "recovery";
    case Doing::kWaitInput:
      return "wait for input";
    case Doing::kCompute:
      return "compute";
    case Doing::kSend:
      return "send";
  }
  return "?";
}

absl::StatusOr<Timeline> MakeTimeline(const std::vector<FlightLog>& logs, uint64_t n_steps) {
  Timeline timeline;
  for (const FlightLog& log : logs) {
    if (!log.steps.empty()) timeline.epoch = std::max(timeline.epoch, log.steps.back().epoch);
  }
  std::map<Place, const FlightLog*> chosen;
  for (const FlightLog& log : logs) {
    if (log.steps.empty() || log.steps.back().epoch != timeline.epoch) continue;
    const FlightLog*& place = chosen[{log.role, log.stage}];
    if (place == nullptr || place->written_unix_ns < log.written_unix_ns) place = &log;
    timeline.last_step = std::max(timeline.last_step, log.steps.back().step);
  }
  if (chosen.empty()) return absl::InvalidArgumentError("the files contain no steps");
  timeline.first_step = timeline.last_step - std::min(timeline.last_step, n_steps) + 1;

  const auto wanted = [&](const FlightStep& step) {
    return step.epoch == timeline.epoch && step.step >= timeline.first_step;
  };
  for (const auto& [place, log] : chosen) {
    for (const FlightStep& step : log->steps) {
      const int64_t begin = BeginOf(*log, step);
      if (!wanted(step) || begin == 0) continue;
      if (timeline.start_unix_ns == 0 || begin < timeline.start_unix_ns) {
        timeline.start_unix_ns = begin;
      }
    }
  }
  for (const auto& [place, log] : chosen) {
    Lane& lane = timeline.lanes.emplace_back();
    lane.name = LaneName(*log);
    lane.pid = log->pid;
    for (const FlightStep& step : log->steps) {
      if (wanted(step)) AddSpans(*log, step, timeline.start_unix_ns, &lane.spans);
    }
    std::stable_sort(lane.spans.begin(), lane.spans.end(),
                     [](const Span& a, const Span& b) { return a.begin_ns < b.begin_ns; });
    for (const Span& span : lane.spans) {
      timeline.length_ns = std::max(timeline.length_ns, span.end_ns);
    }
  }
  return timeline;
}

}  // namespace stagecoach::timeline
