#include "router/text/separated_call_reader.h"

#include <algorithm>
#include <cctype>

#include "common/check.h"
#include "router/text/blank.h"

namespace stagecoach::router {
namespace {

constexpr SeparatedForm kDeepSeek{.call_begin = "<｜tool▁call▁begin｜>",
                                  .separator = "<｜tool▁sep｜>",
                                  .call_end = "<｜tool▁call▁end｜>"};
constexpr SeparatedForm kKimi{.call_begin = "<|tool_call_begin|>",
                              .separator = "<|tool_call_argument_begin|>",
                              .call_end = "<|tool_call_end|>",
                              .has_id = true};

constexpr std::string_view kFence = "```", kJson = "json", kFunctions = "functions.";

// The name in "functions.f:0". Models also leave out the beginning or the number.
std::string_view NameInId(std::string_view id) {
  if (id.starts_with(kFunctions)) id.remove_prefix(kFunctions.size());
  const size_t colon = id.rfind(':');
  if (colon == std::string_view::npos) return id;
  const std::string_view number = id.substr(colon + 1);
  const bool is_number = !number.empty() && std::all_of(number.begin(), number.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
  return is_number ? id.substr(0, colon) : id;
}

}  // namespace

const SeparatedForm& SeparatedFormOf(ToolFamily family) {
  if (family == ToolFamily::kKimi) return kKimi;
  SC_CHECK(family == ToolFamily::kDeepSeek || family == ToolFamily::kDeepSeekFenced);
  return kDeepSeek;
}

size_t SeparatedCallReader::Step(std::string_view text) {
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

size_t SeparatedCallReader::Begin(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return 0;
  const std::string_view rest = text.substr(begin);
  if (rest.starts_with(form_.call_begin)) {
    state_ = State::kHead;
    return begin + form_.call_begin.size();
  }
  if (!form_.call_begin.starts_with(rest)) state_ = State::kFailed;
  return 0;
}

size_t SeparatedCallReader::Head(std::string_view text) {
  const size_t end = text.find(form_.separator);
  const bool found = end != std::string_view::npos;
  if (found ? end > kMaxNameBytes : text.size() >= kMaxNameBytes + form_.separator.size()) {
    state_ = State::kFailed;
    return 0;
  }
  if (!found) return 0;
  head_ = WithoutBlanks(text.substr(0, end));
  state_ = State::kName;
  if (form_.has_id && !SetName(NameInId(head_))) return 0;
  return end + form_.separator.size();
}

bool SeparatedCallReader::SetName(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes ||
      name.find_first_of(" \t\r\n<{}`\"") != std::string_view::npos) {
    state_ = State::kFailed;
    return false;
  }
  name_ = name;
  named_ = true;
  state_ = State::kArguments;
  return true;
}

// Behind the separator: the arguments, or the name and a fence around the arguments.
size_t SeparatedCallReader::Name(std::string_view text) {
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
  return SetName(WithoutBlanks(text.substr(0, end))) ? end + kFence.size() + n_word : 0;
}

size_t SeparatedCallReader::Arguments(std::string_view text) {
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

size_t SeparatedCallReader::CallEnd(std::string_view text) {
  const size_t begin = text.find_first_not_of("` \t\r\n");
  if (begin == std::string_view::npos) return 0;
  const std::string_view rest = text.substr(begin);
  if (rest.starts_with(form_.call_end)) {
    state_ = State::kDone;
    return begin + form_.call_end.size();
  }
  if (!form_.call_end.starts_with(rest)) state_ = State::kFailed;
  return 0;
}

}  // namespace stagecoach::router
