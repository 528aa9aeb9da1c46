#include "router/text/tool_calls.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "router/text/blank.h"
#include "router/text/held_text.h"
#include "router/text/literal_call_reader.h"
#include "router/text/separated_call_reader.h"
#include "router/text/tool_call_ids.h"
#include "router/text/xml_call_reader.h"

namespace stagecoach::router {
namespace {

constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kPythonStart = "<|python_start|>", kPythonEnd = "<|python_end|>";
constexpr std::string_view kCallId = "[CALL_ID]";
constexpr std::string_view kArgs = "[ARGS]";

}  // namespace

// The marks around calls.
struct Marks {
  std::string_view begin;
  std::string_view end;   // "": none, so separators or a list may join calls
  std::string_view call;  // what another call begins with that stands before `end`; "": none does
  bool has_list = false;  // the calls may be in [ ]
};

namespace {

constexpr Marks kMistralMarks{"[TOOL_CALLS]", "", "", true}, kJsonMarks{kPythonTag, "", "", true},
    kNemotronMarks{"<TOOLCALL>", "</TOOLCALL>", "", true},
    kTagMarks{"<tool_call>", "</tool_call>", ""},
    kQwenXmlMarks{"<tool_call>", "</tool_call>", "<function="},
    kSeedMarks{"<seed:tool_call>", "</seed:tool_call>", "<function="},
    kMiniMaxMarks{"<minimax:tool_call>", "</minimax:tool_call>", "<invoke name=\""},
    kDeepSeekMarks{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"},
    kKimiMarks{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"},
    kGemmaMarks{"<|tool_call>", "<tool_call|>", ""};

const Marks& MarksOf(ToolFamily family) {
  switch (family) {
    case ToolFamily::kMistral:
    case ToolFamily::kMistralArgs:
      return kMistralMarks;
    case ToolFamily::kHermes:
    case ToolFamily::kGlm:
      return kTagMarks;
    case ToolFamily::kQwenXml:
      return kQwenXmlMarks;
    case ToolFamily::kSeed:
      return kSeedMarks;
    case ToolFamily::kMiniMax:
      return kMiniMaxMarks;
    case ToolFamily::kDeepSeek:
    case ToolFamily::kDeepSeekFenced:
      return kDeepSeekMarks;
    case ToolFamily::kKimi:
      return kKimiMarks;
    case ToolFamily::kNemotron:
      return kNemotronMarks;
    case ToolFamily::kGemma:
      return kGemmaMarks;
    case ToolFamily::kJson:
    case ToolFamily::kPythonic:
    case ToolFamily::kHarmony:  // not read here
      break;
  }
  return kJsonMarks;
}

}  // namespace

ToolCallParser::ToolCallParser(Options options, std::string id_key)
    : options_(std::move(options)),
      marks_(MarksOf(options_.family)),
      id_key_(std::move(id_key)),
      state_(by_name() ? State::kBeginning : State::kContent) {}

bool ToolCallParser::by_name() const {
  return options_.family == ToolFamily::kJson || options_.family == ToolFamily::kPythonic;
}

std::unique_ptr<CallReader> ToolCallParser::MakeReader(char c) const {
  switch (options_.family) {
    case ToolFamily::kQwenXml:
    case ToolFamily::kGlm:
    case ToolFamily::kMiniMax:
    case ToolFamily::kSeed:
      return std::make_unique<XmlCallReader>(&XmlFormOf(options_.family), marks_.end,
                                             options_.tools);
    case ToolFamily::kDeepSeek:
    case ToolFamily::kDeepSeekFenced:
    case ToolFamily::kKimi:
      return std::make_unique<SeparatedCallReader>(&SeparatedFormOf(options_.family));
    case ToolFamily::kGemma:
      return std::make_unique<LiteralCallReader>(LiteralForm::kGemma);
    default:
      break;
  }
  if (c == '{') return std::make_unique<ToolCallReader>();
  const bool is_name = std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
  if (by_name() && in_list_ && is_name) {
    return std::make_unique<LiteralCallReader>(LiteralForm::kPython);
  }
  return nullptr;
}

void ToolCallParser::Push(std::string_view text, Output* out) {
  held_ += text;
  while (Step(out)) {
  }
}

void ToolCallParser::End(Output* out) {
  const bool reading = state_ == State::kMarked || state_ == State::kName || state_ == State::kCall;
  // The beginning of a further call, which max_tokens cut off, is no text for the client.
  const bool cut_off = state_ == State::kCall && n_calls_ > 0 && marks_.end.empty();
  if (state_ == State::kCall && certain_) {
    reader_->End(held_);
    PassArguments(reader_->TakeArguments(), out);
  }
  if (reading && !certain_ && !cut_off) NoCall(out);
  const bool after_call =
      state_ == State::kBetween || (state_ == State::kAfterCall && marks_.end.empty() && !done());
  if (state_ == State::kBeginning || state_ == State::kContent || state_ == State::kPlain ||
      (after_call && !WithoutBlanks(held_).empty())) {
    out->content += held_;
  }
  held_.clear();
  state_ = State::kEnded;
}

bool ToolCallParser::Step(Output* out) {
  if (done()) held_.clear();
  if (held_.empty()) return false;
  switch (state_) {
    case State::kBeginning:
      return Beginning();
    case State::kContent:
      return Content(out);
    case State::kMarked:
      return Marked(out);
    case State::kName:
      return Name(out);
    case State::kBareArgs:
      return BareArgs(out);
    case State::kCall:
      return Call(out);
    case State::kAfterCall:
      return AfterCall();
    case State::kBetween:
      return Between();
    case State::kPlain:
      out->content += std::exchange(held_, {});
      return false;
    case State::kEnded:
      held_.clear();
      return false;
  }
  return false;
}

bool ToolCallParser::Beginning() {
  const size_t begin = held_.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return false;
  const std::string_view rest = std::string_view(held_).substr(begin);
  for (const std::string_view tag : {kPythonTag, kPythonStart}) {
    if (!rest.starts_with(tag)) continue;
    Take(begin + tag.size());
    state_ = State::kMarked;
    return true;
  }
  if (rest[0] == '{' || rest[0] == '[') {
    state_ = State::kMarked;
  } else if (!kPythonTag.starts_with(rest) && !kPythonStart.starts_with(rest)) {
    state_ = State::kPlain;
  } else {
    return false;
  }
  return true;
}

bool ToolCallParser::Content(Output* out) {
  const size_t at = held_.find(marks_.begin);
  const std::string_view certain(
      held_.data(), at == std::string::npos ? held_.size() - OpenBytes(held_, marks_.begin) : at);
  // Blanks before a call belong to the call.
  const size_t n_content = certain.find_last_not_of(kBlanks) + 1;
  out->content += held_.substr(0, n_content);
  held_.erase(0, n_content);
  if (at == std::string::npos) return false;
  Take(at - n_content + marks_.begin.size());
  state_ = State::kMarked;
  return true;
}

bool ToolCallParser::Marked(Output* out) {
  const size_t begin = held_.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return false;
  const char c = held_[begin];
  if (auto reader = MakeReader(c)) {
    Take(begin);
    reader_ = std::move(reader);
    state_ = State::kCall;
  } else if (c == '[' && marks_.has_list && !in_list_) {
    Take(begin + 1);
    in_list_ = true;
  } else if (c == ']' && in_list_) {
    NoCall(out);
  } else if (options_.family == ToolFamily::kMistral ||
             options_.family == ToolFamily::kMistralArgs) {
    state_ = State::kName;
  } else {
    NoCall(out);
  }
  return true;
}

// "f[ARGS]{}", optionally with "[CALL_ID]abc" after the name.
bool ToolCallParser::Name(Output* out) {
  const size_t end = std::min(held_.find(kArgs), held_.find('{'));
  const bool found = end != std::string::npos;
  if (found ? end > kMaxNameBytes : held_.size() >= kMaxNameBytes + kArgs.size()) {
    NoCall(out);
    return true;
  }
  if (!found) return false;
  const std::string_view head = std::string_view(held_).substr(0, end);
  const std::string name(WithoutBlanks(head.substr(0, head.find(kCallId))));
  if (name.empty() || name.find_first_of(" \t\r\n[]") != std::string::npos) {
    NoCall(out);
    return true;
  }
  Take(held_[end] == '{' ? end : end + kArgs.size());
  BeginCall(name, out);
  end_ = JsonValueEnd();
  state_ = State::kBareArgs;
  return true;
}

bool ToolCallParser::BareArgs(Output* out) {
  if (!end_.begun()) held_.erase(0, held_.find_first_not_of(kBlanks));
  const size_t n = end_.Push(held_);
  PassArguments(held_.substr(0, n), out);
  held_.erase(0, n);
  if (end_.done()) state_ = State::kAfterCall;
  return true;
}

bool ToolCallParser::Call(Output* out) {
  const size_t n = reader_->Push(held_);
  Take(n);
  if (!certain_ && reader_->named()) {
    if (by_name() && !IsTool(reader_->name())) {
      NoCall(out);
      return true;
    }
    BeginCall(reader_->name(), out);
  }
  if (certain_) PassArguments(reader_->TakeArguments(), out);
  if (!reader_->done() && !reader_->failed()) return n > 0;
  if (!certain_) {
    NoCall(out);
  } else if (reader_->done()) {
    state_ = State::kAfterCall;
  } else {
    certain_ = false;
    in_list_ = false;
    state_ = marks_.end.empty() || options_.family == ToolFamily::kHermes ? State::kEnded
                                                                          : State::kContent;
  }
  return true;
}

bool ToolCallParser::AfterCall() {
  certain_ = false;
  taken_.clear();
  if (options_.family == ToolFamily::kHermes) {
    const size_t at = held_.find(marks_.end);
    if (at == std::string::npos) {
      held_.erase(0, held_.size() - OpenBytes(held_, marks_.end));
      return false;
    }
    held_.erase(0, at + marks_.end.size());
    state_ = State::kBetween;
    return true;
  }
  if (!marks_.end.empty()) return AfterMarkedCall();
  const size_t begin = held_.find_first_not_of(" \t\r\n,;");
  if (begin == std::string::npos) {
    held_.clear();
    return false;
  }
  held_.erase(0, begin);
  if (MakeReader(held_[0]) != nullptr) {
    state_ = State::kMarked;
  } else if (in_list_ && held_[0] == ']') {
    held_.erase(0, 1);
    in_list_ = false;
  } else if (held_.starts_with(marks_.begin)) {
    Take(marks_.begin.size());
    state_ = State::kMarked;
  } else if (by_name() && held_.starts_with(kPythonEnd)) {
    held_.erase(0, kPythonEnd.size());
  } else if (!marks_.begin.starts_with(held_) && !(by_name() && kPythonEnd.starts_with(held_))) {
    state_ = State::kPlain;
  } else {
    return false;
  }
  return true;
}

bool ToolCallParser::AfterMarkedCall() {
  if (in_list_) return InList();
  const size_t begin = held_.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return false;
  const std::string_view rest = std::string_view(held_).substr(begin);
  if (rest.starts_with(marks_.end)) {
    held_.erase(0, begin + marks_.end.size());
    state_ = State::kBetween;
  } else if (!marks_.call.empty() && rest.starts_with(marks_.call)) {
    held_.erase(0, begin);
    state_ = State::kMarked;
  } else if (!marks_.end.starts_with(rest) && !marks_.call.starts_with(rest)) {
    held_.erase(0, begin);
    state_ = State::kContent;
  } else {
    return false;
  }
  return true;
}

// Behind a call in a list that has an end mark: another call, or the end of the list.
bool ToolCallParser::InList() {
  const size_t begin = held_.find_first_not_of(" \t\r\n,");
  if (begin == std::string::npos) return false;
  const char c = held_[begin];
  in_list_ = c == '{';
  held_.erase(0, begin + (c == ']' ? 1 : 0));
  if (in_list_) {
    state_ = State::kMarked;
  } else if (c != ']') {
    state_ = State::kContent;
  }
  return true;
}

bool ToolCallParser::Between() {
  const size_t begin = held_.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return false;
  const std::string_view rest = std::string_view(held_).substr(begin);
  if (rest.starts_with(marks_.begin)) {
    held_.erase(0, begin);
    Take(marks_.begin.size());
    state_ = State::kMarked;
    return true;
  }
  if (marks_.begin.starts_with(rest)) return false;
  held_.erase(0, begin);
  state_ = State::kContent;
  return true;
}

void ToolCallParser::BeginCall(std::string name, Output* out) {
  certain_ = true;
  taken_.clear();
  const uint32_t index = n_calls_++;
  out->calls.push_back({.index = index,
                        .id = MakeToolCallId(options_.family, id_key_ + "/" + std::to_string(index),
                                             name, options_.first_number + index),
                        .name = std::move(name)});
}

void ToolCallParser::PassArguments(std::string arguments, Output* out) {
  if (arguments.empty()) return;
  const uint32_t index = n_calls_ - 1;
  if (out->calls.empty() || out->calls.back().index != index) {
    out->calls.push_back({.index = index});
  }
  out->calls.back().arguments += arguments;
}

void ToolCallParser::NoCall(Output* out) {
  state_ = marks_.end.empty() ? State::kPlain : State::kContent;
  in_list_ = false;
  out->content += taken_;
  taken_.clear();
}

void ToolCallParser::Take(size_t n) {
  if (!certain_) taken_ += held_.substr(0, n);
  held_.erase(0, n);
}

bool ToolCallParser::IsTool(std::string_view name) const {
  return FindSchema(options_.tools, name) != nullptr;
}

}  // namespace stagecoach::router
