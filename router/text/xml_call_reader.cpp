#include "router/text/xml_call_reader.h"

#include "common/check.h"
#include "router/text/blank.h"
#include "router/text/held_text.h"

namespace stagecoach::router {
namespace {

constexpr XmlForm kQwen{.call_begin = "<function=",
                        .name_end = ">",
                        .key_begin = "<parameter=",
                        .key_end = ">",
                        .value_begin = "",
                        .value_end = "</parameter>",
                        .call_end = "</function>",
                        .on_lines = true};
constexpr XmlForm kGlm{.call_begin = "",
                       .name_end = "",
                       .key_begin = "<arg_key>",
                       .key_end = "</arg_key>",
                       .value_begin = "<arg_value>",
                       .value_end = "</arg_value>",
                       .call_end = "",
                       .may_join = true};
constexpr XmlForm kSeed{.call_begin = "<function=",
                        .name_end = ">",
                        .key_begin = "<parameter=",
                        .key_end = ">",
                        .value_begin = "",
                        .value_end = "</parameter>",
                        .call_end = "</function>"};
constexpr XmlForm kMiniMax{.call_begin = "<invoke name=\"",
                           .name_end = "\">",
                           .key_begin = "<parameter name=\"",
                           .key_end = "\">",
                           .value_begin = "",
                           .value_end = "</parameter>",
                           .call_end = "</invoke>"};

bool IsToolName(std::string_view name) {
  return !name.empty() && name.find_first_of(" \t\r\n<>{}\"'") == std::string_view::npos;
}

}  // namespace

const XmlForm& XmlFormOf(ToolFamily family) {
  switch (family) {
    case ToolFamily::kQwenXml:
      return kQwen;
    case ToolFamily::kGlm:
      return kGlm;
    case ToolFamily::kSeed:
      return kSeed;
    default:
      SC_CHECK(family == ToolFamily::kMiniMax);
      return kMiniMax;
  }
}

size_t XmlCallReader::Step(std::string_view text) {
  switch (state_) {
    case State::kBegin:
      return Begin(text);
    case State::kName:
      return Name(text);
    case State::kMembers:
    case State::kValueBegin:
      return Members(text);
    case State::kKey:
      return Key(text);
    case State::kValue:
      return Value(text);
    default:
      return 0;
  }
}

size_t XmlCallReader::Begin(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return 0;
  const std::string_view rest = text.substr(begin);
  if (rest.starts_with(form_.call_begin)) {
    state_ = State::kName;
    return begin + form_.call_begin.size();
  }
  if (!form_.call_begin.starts_with(rest)) Fail();
  return 0;
}

size_t XmlCallReader::Name(std::string_view text) {
  const size_t end = form_.name_end.empty() ? text.find_first_of("\n<") : text.find(form_.name_end);
  if (end == std::string_view::npos) {
    if (text.size() > kMaxNameBytes + form_.name_end.size()) Fail();
    return 0;
  }
  std::string_view name = text.substr(0, end);
  name = name.substr(0, name.find_last_not_of(kBlanks) + 1);
  if (end > kMaxNameBytes || !IsToolName(name)) {
    Fail();
    return 0;
  }
  name_ = name;
  named_ = true;
  if (const std::string* const schema = FindSchema(schemas_, name_)) types_.emplace(*schema);
  state_ = State::kMembers;
  return end + form_.name_end.size();
}

size_t XmlCallReader::Members(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return 0;
  const std::string_view rest = text.substr(begin);
  if (state_ == State::kValueBegin) {
    if (rest.starts_with(form_.value_begin)) {
      BeginValue();
      return begin + form_.value_begin.size();
    }
    if (!form_.value_begin.starts_with(rest)) Fail();
    return 0;
  }
  const std::string_view end = form_.call_end.empty() ? end_tag_ : form_.call_end;
  if (rest.starts_with(form_.key_begin)) {
    state_ = State::kKey;
    return begin + form_.key_begin.size();
  }
  if (rest.starts_with(end)) {
    arguments_ += has_member_ ? "}" : "{}";
    state_ = State::kDone;
    return begin + form_.call_end.size();
  }
  if (!form_.key_begin.starts_with(rest) && !end.starts_with(rest)) Fail();
  return 0;
}

size_t XmlCallReader::Key(std::string_view text) {
  const size_t end = text.find(form_.key_end);
  if (end == std::string_view::npos) {
    if (text.size() > kMaxNameBytes + form_.key_end.size()) Fail();
    return 0;
  }
  if (end > kMaxNameBytes) {
    Fail();
    return 0;
  }
  const std::string_view key = text.substr(0, end);
  type_ = types_ ? types_->Of(key) : kJsonAny;
  arguments_ += (has_member_ ? ", \"" : "{\"") + EscapedJson(key) + "\": ";
  has_member_ = true;
  if (form_.value_begin.empty()) {
    BeginValue();
  } else {
    state_ = State::kValueBegin;
  }
  return end + form_.key_end.size();
}

size_t XmlCallReader::Value(std::string_view text) {
  const size_t end = text.find(form_.value_end);
  if (end != std::string_view::npos) {
    AddValue(text.substr(0, end));
    EndValue();
    return end + form_.value_end.size();
  }
  const size_t n = text.size() - OpenBytes(text, form_.value_end);
  AddValue(text.substr(0, n));
  return n;
}

void XmlCallReader::Fail() {
  if (state_ == State::kValueBegin) arguments_ += "null";  // a name without a value
  if (named_) arguments_ += has_member_ ? "}" : "{}";
  state_ = State::kFailed;
}

void XmlCallReader::BeginValue() {
  state_ = State::kValue;
  at_value_begin_ = form_.on_lines;
  if (type_ == kJsonString) arguments_ += '"';
}

void XmlCallReader::AddValue(std::string_view text) {
  if (text.empty()) return;
  if (at_value_begin_ && text[0] == '\n') text.remove_prefix(1);
  at_value_begin_ = false;
  value_ += text;
  if (type_ != kJsonString) return;
  // A line break may be the one before the end tag.
  const bool held = form_.on_lines && value_.ends_with('\n');
  arguments_ += EscapedJson(std::string_view(value_).substr(0, value_.size() - (held ? 1 : 0)));
  value_ = held ? "\n" : "";
}

void XmlCallReader::EndValue() {
  if (form_.on_lines && value_.ends_with('\n')) value_.pop_back();
  arguments_ += type_ == kJsonString ? EscapedJson(value_) + "\"" : ArgumentJson(value_, type_);
  value_.clear();
  state_ = State::kMembers;
}

void XmlCallReader::End(std::string_view rest) {
  if (state_ != State::kValue) return;
  // The value is cut off, and so is its JSON.
  AddValue(rest);
  arguments_ += type_ == kJsonString ? EscapedJson(value_) : ArgumentJson(value_, type_);
  value_.clear();
}

}  // namespace stagecoach::router
