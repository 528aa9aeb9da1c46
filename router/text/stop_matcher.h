// Finds stop strings in text that comes in pieces.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace stagecoach::router {

// The text ends before the stop string that is complete first; of several that end at the same
// byte, before the longest. So the result does not depend on where the pieces are cut. Text is held
// back only while it could still become a stop string.
class StopMatcher {
 public:
  // `stops` outlives the matcher; none of them is empty.
  explicit StopMatcher(std::span<const std::string> stops) : stops_(stops) {}

  // Returns the text that is certain now. Not to be called after a match.
  std::string Append(std::string_view text);
  // The text ends here: what was held back.
  std::string Flush();

  // The stop string found, or null.
  const std::string* matched() const { return matched_; }

 private:
  std::span<const std::string> stops_;
  std::string held_;  // could be the beginning of a stop string
  const std::string* matched_ = nullptr;
};

}  // namespace stagecoach::router
