#include "router/text/harmony.h"

#include <algorithm>
#include <array>
#include <utility>

#include "router/text/blank.h"
#include "router/text/held_text.h"
#include "router/text/tool_call_ids.h"

namespace stagecoach::router {
namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>",
                           kEnd = "<|end|>", kAnalysis = "analysis";
// What ends a message; the last two begin another one.
constexpr std::array<std::string_view, 5> kEnds = {kEnd, "<|call|>", "<|return|>", kStart,
                                                   kChannel};
constexpr size_t kMaxHeadBytes = 1024;
constexpr std::string_view kTo = "to=", kFunctions = "functions.";

// Where the first of the marks begins, or npos; `mark` becomes the mark.
size_t FindEnd(std::string_view text, std::string_view* mark) {
  size_t first = std::string_view::npos;
  for (const std::string_view one : kEnds) {
    const size_t at = text.find(one);
    if (at >= first) continue;
    first = at;
    *mark = one;
  }
  return first;
}

// The bytes at the end of `text` with which a mark may begin.
size_t OpenEnd(std::string_view text) {
  size_t n = 0;
  for (const std::string_view one : kEnds) n = std::max(n, OpenBytes(text, one));
  return n;
}

// The word behind `key` in a message's head; it ends at a blank or a mark.
std::string_view WordBehind(std::string_view head, std::string_view key) {
  const size_t at = head.find(key);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = head.substr(at + key.size());
  return rest.substr(0, rest.find_first_of(" \t\r\n<"));
}

// Whether a message's head may begin like this.
bool MayBeHead(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return true;
  const std::string_view rest = text.substr(begin);
  return std::ranges::any_of(std::array{kChannel, kMessage, kStart, kTo}, [&](auto sign) {
    return rest.starts_with(sign) || sign.starts_with(rest);
  });
}

}  // namespace

HarmonyReader::HarmonyReader(Options options, std::string id_key)
    : separate_reasoning_(options.separate_reasoning),
      tools_(std::move(options.tools)),
      id_key_(std::move(id_key)) {
  Output in_prompt;
  Push(options.begun, &in_prompt);
}

bool HarmonyReader::done() const {
  return tools_ && !tools_->parallel && n_calls_ > 0 && call_ended_;
}

void HarmonyReader::Push(std::string_view text, Output* out) {
  held_ += text;
  while (Step(out)) {
  }
}

bool HarmonyReader::Step(Output* out) {
  if (done()) held_.clear();
  if (held_.empty()) return false;
  switch (state_) {
    case State::kHead:
      return Head(out);
    case State::kBehind:
      return Behind();
    default:
      return Message(out);
  }
}

bool HarmonyReader::Head(Output* out) {
  if (!is_started_ && !MayBeHead(held_)) {
    BeginPlain();
    return true;
  }
  const size_t end = held_.find(kMessage);
  const bool found = end != std::string::npos;
  if (found ? end > kMaxHeadBytes : held_.size() >= kMaxHeadBytes + kMessage.size()) {
    BeginPlain();
    // The mark in front would begin a head again.
    const size_t n = is_started_ ? 0 : held_.find_first_not_of(kBlanks) + 1;
    Pass((is_started_ ? std::string(kStart) : "") + held_.substr(0, n), out);
    held_.erase(0, n);
    return true;
  }
  if (!found) return false;
  const std::string head = held_.substr(0, end);
  held_.erase(0, end + kMessage.size());
  Begin(head, out);
  return true;
}

void HarmonyReader::Begin(std::string_view head, Output* out) {
  const std::string_view channel = WordBehind(head, kChannel);
  std::string_view name = WordBehind(head, kTo);
  has_text_ = false;
  keeps_marks_ = false;
  if (tools_ && name.starts_with(kFunctions) && name.size() > kFunctions.size()) {
    name.remove_prefix(kFunctions.size());
    state_ = State::kCall;
    call_ended_ = false;
    const uint32_t index = n_calls_++;
    out->rest.calls.push_back(
        {.index = index,
         .id = MakeToolCallId(ToolFamily::kHarmony, id_key_ + "/" + std::to_string(index), name,
                              tools_->first_number + index),
         .name = std::string(name)});
  } else if (channel == kAnalysis && separate_reasoning_) {
    state_ = State::kReasoning;
  } else {
    state_ = State::kContent;
    keeps_marks_ = channel == kAnalysis;
  }
}

bool HarmonyReader::Behind() {
  const size_t begin = held_.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return false;
  const std::string_view rest = std::string_view(held_).substr(begin);
  is_started_ = rest.starts_with(kStart);
  if (is_started_ || rest.starts_with(kChannel)) {
    held_.erase(0, begin + (is_started_ ? kStart.size() : 0));
    state_ = State::kHead;
    return true;
  }
  if (kStart.starts_with(rest) || kChannel.starts_with(rest)) return false;
  held_.erase(0, begin);
  BeginPlain();
  return true;
}

void HarmonyReader::BeginPlain() {
  has_text_ = false;
  keeps_marks_ = false;
  state_ = State::kContent;
}

bool HarmonyReader::Message(Output* out) {
  std::string_view mark;
  const size_t end = FindEnd(held_, &mark);
  if (end == std::string::npos) {
    const size_t n = held_.size() - OpenEnd(held_);
    Pass(std::string_view(held_).substr(0, n), out);
    held_.erase(0, n);
    return false;
  }
  Pass(std::string_view(held_).substr(0, end), out);
  held_.erase(0, end + (mark == kStart || mark == kChannel ? 0 : mark.size()));
  EndMessage(out);
  return true;
}

void HarmonyReader::Pass(std::string_view text, Output* out) {
  if (text.empty()) return;
  const bool is_first = !std::exchange(has_text_, true);
  if (state_ == State::kCall) {
    std::vector<ToolCallPiece>& calls = out->rest.calls;
    if (calls.empty() || calls.back().index != n_calls_ - 1) {
      calls.push_back({.index = n_calls_ - 1});
    }
    calls.back().arguments += text;
    return;
  }
  const bool reasons = state_ == State::kReasoning;
  std::string& kind = reasons ? out->reasoning : out->rest.content;
  bool& has_some = reasons ? has_reasoning_ : has_content_;
  if (is_first && has_some) kind += '\n';
  if (is_first && keeps_marks_) kind.append(kChannel).append(kAnalysis).append(kMessage);
  has_some = true;
  kind += text;
}

void HarmonyReader::EndMessage(Output* out) {
  if (state_ == State::kCall) {
    if (!has_text_) Pass("{}", out);
    call_ended_ = true;
  }
  if (keeps_marks_ && has_text_) Pass(kEnd, out);
  state_ = State::kBehind;
}

void HarmonyReader::End(Output* out) {
  const bool is_head =
      state_ == State::kHead && (is_started_ || held_.find(kTo) != std::string::npos ||
                                 held_.find(kChannel) != std::string::npos);
  const bool is_blank =
      state_ == State::kBehind && held_.find_first_not_of(kBlanks) == std::string::npos;
  if (state_ == State::kHead || state_ == State::kBehind) BeginPlain();
  if (!is_head && !is_blank) Pass(held_, out);
  held_.clear();
  state_ = State::kBehind;
}

}  // namespace stagecoach::router
