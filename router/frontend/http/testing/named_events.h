// Reads server-sent events that have names.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router::http {

// The data of each event. Requires that an event's name is the type in its data.
inline std::vector<boost::json::object> NamedEvents(const std::string& text) {
  std::vector<boost::json::object> events;
  for (size_t at = 0; at < text.size();) {
    REQUIRE(text.compare(at, 7, "event: ") == 0);
    const size_t line_end = text.find('\n', at);
    const size_t end = text.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    REQUIRE(text.compare(line_end, 7, "\ndata: ") == 0);
    const boost::json::value data =
        boost::json::parse(text.substr(line_end + 7, end - line_end - 7));
    CHECK(data.at("type").as_string() == text.substr(at + 7, line_end - at - 7));
    events.push_back(data.as_object());
    at = end + 2;
  }
  return events;
}

}  // namespace stagecoach::router::http
