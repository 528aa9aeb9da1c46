#include <fmt/format.h>

#include <boost/json.hpp>
#include <string>
#include <utility>

#include "cli/timeline/timeline.h"
#include "common/json_text.h"

namespace stagecoach::timeline {
namespace {

namespace json = boost::json;

double Microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

json::object Metadata(const char* what, size_t lane, const char* argument, json::value value) {
  json::object args;
  args[argument] = std::move(value);
  json::object event;
  event["ph"] = "M";
  event["name"] = what;
  event["pid"] = lane;
  event["tid"] = 0;
  event["args"] = std::move(args);
  return event;
}

json::object Event(const Span& span, size_t lane, const char* phase) {
  json::object args;
  args["step"] = span.step;
  args["prefill_tokens"] = span.n_prefill_tokens;
  args["decode_tokens"] = span.n_decode_tokens;
  args["ended"] = !span.open;
  json::object event;
  event["name"] = fmt::format("{} {}", Name(span.doing), span.step);
  event["cat"] = Name(span.doing);
  event["ph"] = phase;
  event["ts"] = Microseconds(span.begin_ns);
  event["pid"] = lane;
  event["tid"] = 0;
  event["args"] = std::move(args);
  return event;
}

}  // namespace

// Each lane is one "process", so that the viewer keeps their order. The router's steps overlap, so
// they use asynchronous events (b, e), which may overlap.
std::string ToChromeTrace(const Timeline& timeline) {
  json::array events;
  for (size_t i = 0; i < timeline.lanes.size(); ++i) {
    const Lane& lane = timeline.lanes[i];
    const std::string name = fmt::format("{} ({})", lane.name, lane.pid);
    events.emplace_back(Metadata("process_name", i, "name", json::value(name)));
    events.emplace_back(Metadata("process_sort_index", i, "sort_index", i));
    for (const Span& span : lane.spans) {
      const bool overlaps = IsRouters(span.doing);
      json::object event = Event(span, i, overlaps ? "b" : "X");
      if (!overlaps) {
        event["dur"] = Microseconds(span.end_ns - span.begin_ns);
        events.emplace_back(std::move(event));
        continue;
      }
      event["id"] = span.step;
      json::object end = event;
      end["ph"] = "e";
      end["ts"] = Microseconds(span.end_ns);
      events.emplace_back(std::move(event));
      events.emplace_back(std::move(end));
    }
  }
  json::object trace;
  trace["displayTimeUnit"] = "ms";
  trace["traceEvents"] = std::move(events);
  return JsonText(std::move(trace));
}

}  // namespace stagecoach::timeline
