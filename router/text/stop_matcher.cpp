#include "router/text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "router/text/held_text.h"

namespace stagecoach::router {

std::string StopMatcher::Append(std::string_view text) {
  SC_CHECK(matched_ == nullptr);
  if (stops_.empty()) return std::string(text);
  held_ += text;
  size_t begin = 0;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t this_end = at + stop.size();
    if (this_end < end || (this_end == end && at < begin)) {
      begin = at;
      end = this_end;
      matched_ = &stop;
    }
  }
  size_t n_open = 0;
  if (matched_ == nullptr) {
    for (const std::string& stop : stops_) n_open = std::max(n_open, OpenBytes(held_, stop));
  }
  std::string certain = held_.substr(0, matched_ != nullptr ? begin : held_.size() - n_open);
  held_.erase(0, matched_ != nullptr ? held_.size() : certain.size());
  return certain;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

}  // namespace stagecoach::router
