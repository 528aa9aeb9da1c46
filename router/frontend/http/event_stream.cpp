#include "router/frontend/http/event_stream.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "common/json_text.h"
#include "router/frontend/http/api_error.h"

namespace stagecoach::router::http {

HttpResponse EventStreamHead() {
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  // Keeps proxies from buffering the stream.
  head.fields = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  return head;
}

std::string NamedEvent(std::string_view name, const boost::json::object& data) {
  std::string event = fmt::format("event: {}\ndata: ", name);
  AppendJsonText(data, event);
  return event + "\n\n";
}

std::string ErrorEvents(const absl::Status& status) {
  return "data: " + ErrorJson(status) + "\n\ndata: [DONE]\n\n";
}

void SetLastEventId(std::string& events, uint64_t id) {
  if (events.empty()) return;
  // An event ends with an empty line and contains none inside.
  const size_t before = events.rfind("\n\n", events.size() - 3);
  events.insert(before == std::string::npos ? 0 : before + 2, fmt::format("id: {}\n", id));
}

}  // namespace stagecoach::router::http
