// Finds stop strings in text that arrives in pieces.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace stagecoach::router {

// The text ends before the stop string that is complete first; if several end at the same byte,
// before the longest. So the result does not depend on where the pieces are cut. Holds text back
// only while it may become a stop string.
class StopMatcher {
 public:
  // `stops` outlives the matcher; none of them is empty.
  explicit StopMatcher(std::span<const std::string> stops) : stops_(stops) {}

  // Returns the text that is certain now. Do not call it after a match.
  std::string Append(std::string_view text);
  // The text ends here: returns the held text.
  std::string Flush();

  // The stop string found, or null.
  const std::string* matched() const { return matched_; }

 private:
  std::span<const std::string> stops_;
  std::string held_;  // may be the beginning of a stop string
  const std::string* matched_ = nullptr;
};

}  // namespace stagecoach::router
