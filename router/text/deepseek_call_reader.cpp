#include "router/text/deepseek_call_reader.h"

#include <algorithm>

#include "router/text/blank.h"

namespace stagecoach::router {
namespace {

constexpr std::string_view kFence = "```", kJson = "json";

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace

size_t DeepSeekCallReader::Step(std::string_view text) {
  switch (state_) {
    case State::kBegin:
      return Begin(text);
    case State::kHead:
      return Head(text);
    case State::kName:
      return Name(text);
    case State::kArguments:
      return Arguments(text);
    case State::kEnd:
      return CallEnd(text);
    default:
      return 0;
  }
}

size_t DeepSeekCallReader::Begin(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return 0;
  const std::string_view rest = text.substr(begin);
  if (rest.starts_with(kDeepSeekCallBegin)) {
    state_ = State::kHead;
    return begin + kDeepSeekCallBegin.size();
  }
  if (!kDeepSeekCallBegin.starts_with(rest)) state_ = State::kFailed;
  return 0;
}

size_t DeepSeekCallReader::Head(std::string_view text) {
  const size_t end = text.find(kDeepSeekSeparator);
  const bool found = end != std::string_view::npos;
  if (found ? end > kMaxNameBytes : text.size() >= kMaxNameBytes + kDeepSeekSeparator.size()) {
    state_ = State::kFailed;
    return 0;
  }
  if (!found) return 0;
  head_ = Trim(text.substr(0, end));
  state_ = State::kName;
  return end + kDeepSeekSeparator.size();
}

bool DeepSeekCallReader::SetName(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes ||
      name.find_first_of(" \t\r\n{}`\"") != std::string_view::npos) {
    state_ = State::kFailed;
    return false;
  }
  name_ = name;
  named_ = true;
  state_ = State::kArguments;
  return true;
}

// Behind the separator: the arguments, or the name and a fence around the arguments.
size_t DeepSeekCallReader::Name(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return 0;
  if (text[begin] == '{') return SetName(head_) ? begin : 0;
  const size_t end = text.find(kFence, begin);
  if (end == std::string_view::npos) {
    if (text.size() > 2 * kMaxNameBytes) state_ = State::kFailed;
    return 0;
  }
  if (end > 2 * kMaxNameBytes - kFence.size()) {
    state_ = State::kFailed;
    return 0;
  }
  // The word behind the fence says what is in it.
  const std::string_view inside = text.substr(end + kFence.size());
  const size_t n_word = std::min(inside.find_first_of("\n{"), inside.size());
  if (n_word > kJson.size() + 1) state_ = State::kFailed;
  if (failed() || n_word == inside.size()) return 0;
  return SetName(Trim(text.substr(0, end))) ? end + kFence.size() + n_word : 0;
}

size_t DeepSeekCallReader::Arguments(std::string_view text) {
  if (!end_.begun()) {
    const size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return 0;
    if (text[begin] != '{') {
      arguments_ += "{}";
      state_ = State::kFailed;
      return 0;
    }
    if (begin > 0) return begin;
  }
  const size_t n = end_.Push(text);
  arguments_ += text.substr(0, n);
  if (end_.done()) state_ = State::kEnd;
  return n;
}

size_t DeepSeekCallReader::CallEnd(std::string_view text) {
  const size_t begin = text.find_first_not_of("` \t\r\n");
  if (begin == std::string_view::npos) return 0;
  const std::string_view rest = text.substr(begin);
  if (rest.starts_with(kDeepSeekCallEnd)) {
    state_ = State::kDone;
    return begin + kDeepSeekCallEnd.size();
  }
  if (!kDeepSeekCallEnd.starts_with(rest)) state_ = State::kFailed;
  return 0;
}

}  // namespace stagecoach::router
