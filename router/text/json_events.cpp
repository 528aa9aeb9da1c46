#include "router/text/json_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "router/text/blank.h"

namespace stagecoach::router {
namespace {

// No document for people is this deep; stops a model that opens brackets endlessly.
constexpr size_t kMaxDepth = 256;
// Every event carries its path.
constexpr size_t kMostPathBytes = 4096;

bool IsNumber(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

}  // namespace

JsonEventParser::JsonEventParser(const JsonPaths* paths, Source source)
    : paths_(*paths),
      source_(source),
      state_(source == Source::kPrompted ? State::kSearch : State::kValue),
      place_(paths->Root()) {}

void JsonEventParser::Push(std::string_view text, std::vector<JsonEvent>* events) {
  events_ = events;
  continues_ = false;
  std::string decoded;
  for (size_t at = 0; at < text.size();) {
    switch (state_) {
      case State::kKeyString:
        at += string_.Push(text.substr(at), &key_);
        if (!string_.closed()) break;
        if (Enter(key_)) state_ = State::kColon;
        break;
      case State::kString:
        decoded.clear();
        at += string_.Push(text.substr(at), &decoded);
        if (!decoded.empty()) Emit(decoded);
        if (string_.closed()) EndValue();
        break;
      case State::kNumber:
        at += Number(text.substr(at));
        break;
      case State::kSearch:
        Search(text[at++]);
        break;
      case State::kCandidate:
        Candidate(text[at++]);
        break;
      case State::kValue:
        BeginValue(text[at++]);
        break;
      case State::kKey:
        BeginKey(text[at++]);
        break;
      case State::kColon:
        if (text[at] == ':') {
          state_ = State::kValue;
        } else if (!IsBlank(text[at])) {
          Break();
        }
        ++at;
        break;
      case State::kLiteral:
        Literal(text[at++]);
        break;
      case State::kAfterValue:
        AfterValue(text[at++]);
        break;
      case State::kComplete:
      case State::kBroken:
        return;
    }
    if (std::exchange(read_again_, false)) Search(text[at - 1]);
  }
}

void JsonEventParser::Search(char c) {
  const bool array_may_begin = at_beginning_ && paths_.MayBeginWithArray();
  if (c == '{' || (c == '[' && array_may_begin)) {
    candidate_ = c;
    state_ = State::kCandidate;
    return;
  }
  if (c == '\n') {
    at_beginning_ = at_beginning_ || line_.starts_with("```");
    line_.clear();
  } else if (!line_.empty() || !IsBlank(c)) {
    if (line_.size() < 3) line_ += c;
    at_beginning_ = false;
  }
}

void JsonEventParser::Candidate(char c) {
  if (IsBlank(c)) return;
  // Ordinary sentences have brackets too: "[sic]", "{name}".
  const bool begins = candidate_ == '[' ? c == '{' || c == '[' || c == '"' : c == '"';
  if (!begins) return Break();
  place_ = paths_.Root();
  Open(candidate_ == '[');
  state_ == State::kKey ? BeginKey(c) : BeginValue(c);
}

void JsonEventParser::BeginValue(char c) {
  if (IsBlank(c)) return;
  if (!levels_.empty() && levels_.back().is_array) {
    // Accepted after a comma too: models sometimes write a trailing comma.
    if (c == ']') return Close(/*is_array=*/true);
    if (!Enter(fmt::format_int(levels_.back().index).str())) return;
  }
  has_event_ = false;
  if (c == '{' || c == '[') {
    Open(c == '[');
  } else if (c == '"') {
    string_.Reset();
    state_ = State::kString;
  } else if (c == '-' || (c >= '0' && c <= '9')) {
    state_ = State::kNumber;
    Emit({&c, 1});
  } else if (c == 't' || c == 'f' || c == 'n') {
    literal_ = c == 't' ? "true" : c == 'f' ? "false" : "null";
    n_literal_ = 1;
    state_ = State::kLiteral;
  } else {
    Break();
  }
}

void JsonEventParser::BeginKey(char c) {
  if (IsBlank(c)) return;
  if (c == '}') return Close(/*is_array=*/false);
  if (c != '"') return Break();
  key_.clear();
  string_.Reset();
  state_ = State::kKeyString;
}

size_t JsonEventParser::Number(std::string_view text) {
  const auto end = std::find_if_not(text.begin(), text.end(), IsNumber);
  const size_t n = static_cast<size_t>(end - text.begin());
  if (n > 0) Emit(text.substr(0, n));
  if (n < text.size()) EndValue();
  return n;
}

void JsonEventParser::Literal(char c) {
  if (c != literal_[n_literal_]) return Break();
  if (++n_literal_ < literal_.size()) return;
  Emit(literal_);
  EndValue();
}

void JsonEventParser::AfterValue(char c) {
  if (IsBlank(c)) return;
  Level& level = levels_.back();
  if (c == ',') {
    ++level.index;
    state_ = level.is_array ? State::kValue : State::kKey;
  } else if (c == ']' || c == '}') {
    Close(c == ']');
  } else {
    Break();
  }
}

void JsonEventParser::Open(bool is_array) {
  if (levels_.size() == kMaxDepth) return Break();
  levels_.push_back({is_array, 0, path_.size(), place_});
  state_ = is_array ? State::kValue : State::kKey;
}

void JsonEventParser::Close(bool is_array) {
  if (levels_.back().is_array != is_array) return Break();
  path_.resize(levels_.back().path_size);
  place_ = std::move(levels_.back().place);
  levels_.pop_back();
  has_event_ = true;  // containers have no events
  EndValue();
}

bool JsonEventParser::Enter(std::string_view segment) {
  const Level& level = levels_.back();
  path_.resize(level.path_size);
  path_ += '/';
  AppendPointerSegment(segment, &path_);
  if (path_.size() > kMostPathBytes) {
    Break();
    return false;
  }
  place_ = paths_.Child(level.place, levels_.size() - 1, segment);
  continues_ = false;
  return true;
}

void JsonEventParser::EndValue() {
  if (!has_event_) Emit("");
  continues_ = false;
  if (!levels_.empty()) {
    state_ = State::kAfterValue;
  } else {
    state_ = source_ == Source::kPrompted && !had_event_ ? State::kSearch : State::kComplete;
  }
}

void JsonEventParser::Break() {
  levels_.clear();
  path_.clear();
  // If no event was returned yet, treat it as no document.
  read_again_ = source_ == Source::kPrompted && !had_event_;
  state_ = read_again_ ? State::kSearch : State::kBroken;
  at_beginning_ = false;
  line_ = "...";  // not a fence
}

void JsonEventParser::Emit(std::string_view delta) {
  has_event_ = true;
  if (!place_.selected) return;
  had_event_ = true;
  if (continues_ && !events_->empty()) {
    events_->back().delta += delta;
  } else {
    events_->push_back({path_, std::string(delta)});
    continues_ = true;
  }
}

}  // namespace stagecoach::router
