#include "router/text/reasoning.h"

#include <algorithm>
#include <utility>

#include "router/text/blank.h"
#include "router/text/held_text.h"

namespace stagecoach::router {

void ReasoningSplitter::Push(std::string_view text, Output* out) {
  held_ += text;
  while (Step(out)) {
  }
}

bool ReasoningSplitter::Step(Output* out) {
  if (state_ == State::kContent) {
    out->content += std::exchange(held_, {});
    return false;
  }
  const bool inside = state_ == State::kThinking && has_reasoning_;
  const size_t begin = inside ? 0 : held_.find_first_not_of(kBlanks);
  if (begin == std::string::npos || held_.empty()) return false;
  const std::string_view rest = std::string_view(held_).substr(begin);
  if (state_ == State::kBehind) {
    held_.erase(0, begin);
    state_ = State::kContent;
    return true;
  }
  if (state_ == State::kBeginning) {
    if (rest.starts_with(marks_.begin)) {
      held_.erase(0, begin + marks_.begin.size());
      state_ = State::kThinking;
      return true;
    }
    if (marks_.begin.starts_with(rest)) return false;
    if (is_behind_) held_.erase(0, begin);
    state_ = State::kContent;
    return true;
  }
  const size_t calls = marks_.calls.empty() ? std::string::npos : held_.find(marks_.calls);
  const size_t close = std::min(held_.find(marks_.end), calls);
  size_t n_open = 0;
  if (close == std::string::npos) {
    n_open = OpenBytes(held_, marks_.end);
    if (!marks_.calls.empty()) n_open = std::max(n_open, OpenBytes(held_, marks_.calls));
  }
  // Holds blanks back until it is known whether the end mark follows.
  std::string_view thought(held_);
  thought = thought.substr(0, std::min(close, held_.size() - n_open));
  const size_t last = thought.find_last_not_of(kBlanks);
  thought = thought.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (!thought.empty()) {
    out->reasoning += thought.substr(begin);
    has_reasoning_ = true;
  }
  if (close != std::string::npos) {
    held_.erase(0, close + (close == calls ? 0 : marks_.end.size()));
    state_ = State::kBehind;
    return true;
  }
  held_.erase(0, thought.size());
  return false;
}

void ReasoningSplitter::End(Output* out) {
  if (state_ == State::kThinking) {
    // The beginning of an end mark that did not come.
    out->reasoning += held_.substr(std::min(held_.find_first_not_of(kBlanks), held_.size()));
  } else if (state_ != State::kBehind) {
    const bool all_blank = held_.find_first_not_of(kBlanks) == std::string::npos;
    if (!is_behind_ || state_ != State::kBeginning || !all_blank) out->content += held_;
  }
  held_.clear();
}

}  // namespace stagecoach::router
