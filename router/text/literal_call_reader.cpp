#include "router/text/literal_call_reader.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>

#include "router/text/argument_types.h"
#include "router/text/blank.h"
#include "router/text/held_text.h"

namespace stagecoach::router {
namespace {

constexpr std::string_view kGemmaHead = "call:", kGemmaQuote = "<|\"|>";
constexpr size_t kMaxDepth = 100;  // of brackets, as in other JSON

bool IsNameByte(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

bool IsHex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

char Closing(char open) { return open == '(' ? ')' : open == '[' ? ']' : '}'; }

}  // namespace

size_t LiteralCallReader::Step(std::string_view text) {
  const bool skips = state_ != State::kName && state_ != State::kKeyWord &&
                     state_ != State::kWord && state_ != State::kString;
  if (skips && IsBlank(text[0])) return 1;
  switch (state_) {
    case State::kName:
      return Name(text);
    case State::kKeyOrEnd:
      if (text[0] == Closing(stack_.back())) {
        Close();
        return 1;
      }
      return Key(text);
    case State::kKey:
      return Key(text);
    case State::kKeyWord:
      return KeyWord(text);
    case State::kColon:
      if (text[0] == (!is_gemma_ && stack_.size() == 1 ? '=' : ':')) {
        named_ = true;  // with a first argument it is certain to be a call
        state_ = State::kValue;
        arguments_ += ": ";
        return 1;
      }
      Fail();
      return 0;
    case State::kItemOrEnd:
      if (text[0] == ']') {
        Close();
        return 1;
      }
      return Value(text);
    case State::kValue:
      return Value(text);
    case State::kWord:
      return Word(text);
    case State::kString:
      return String(text);
    case State::kAfterValue:
      return AfterValue(text[0]);
    default:
      return 0;
  }
}

size_t LiteralCallReader::Name(std::string_view text) {
  const std::string_view head = is_gemma_ ? kGemmaHead : "";
  const char open = is_gemma_ ? '{' : '(';
  if (!text.starts_with(head)) {
    if (!head.starts_with(text)) Fail();
    return 0;
  }
  const std::string_view rest = text.substr(head.size());
  const size_t n = std::find_if_not(rest.begin(), rest.end(), IsNameByte) - rest.begin();
  const bool ends = n < rest.size();
  if (n > kMaxNameBytes || (ends && (n == 0 || rest[n] != open))) {
    Fail();
    return 0;
  }
  if (!ends) return 0;
  name_ = rest.substr(0, n);
  Open(open);
  return head.size() + n + 1;
}

size_t LiteralCallReader::QuoteBytes(std::string_view text) const {
  if (is_gemma_) {
    if (text.starts_with(kGemmaQuote)) return kGemmaQuote.size();
    return kGemmaQuote.starts_with(text) ? std::string_view::npos : 0;
  }
  return text[0] == '"' || text[0] == '\'' ? 1 : 0;
}

size_t LiteralCallReader::Key(std::string_view text) {
  const size_t n_quote = QuoteBytes(text);
  if (n_quote == std::string_view::npos) return 0;
  const bool may_quote = is_gemma_ || stack_.size() > 1;
  if (n_quote > 0 && may_quote) {
    is_key_ = true;
    BeginString(text[0]);
    return n_quote;
  }
  if (n_quote > 0 || !IsKeyByte(text[0])) {
    Fail();
    return 0;
  }
  state_ = State::kKeyWord;
  return 0;
}

bool LiteralCallReader::IsKeyByte(char c) const {
  // Without quotes, Gemma may have any text in front of the colon.
  return is_gemma_ ? std::string_view(":,{}[]<>\n").find(c) == std::string_view::npos
                   : IsNameByte(c);
}

size_t LiteralCallReader::KeyWord(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && IsKeyByte(text[n])) ++n;
  if (n > kMaxNameBytes) {
    Fail();
    return 0;
  }
  if (n == text.size()) return 0;
  Separate();
  arguments_ += "\"" + EscapedJson(text.substr(0, n)) + "\"";
  state_ = State::kColon;
  return n;
}

size_t LiteralCallReader::Value(std::string_view text) {
  const size_t n_quote = QuoteBytes(text);
  if (n_quote == std::string_view::npos) return 0;
  const char c = text[0];
  if (n_quote > 0) {
    is_key_ = false;
    BeginString(c);
    return n_quote;
  }
  if (c == '{' || c == '[') {
    Open(c);
    return 1;
  }
  if (std::string_view(",:=()]}").find(c) != std::string_view::npos) {
    Fail();
    return 0;
  }
  Separate();
  word_.clear();
  state_ = State::kWord;
  return 0;
}

size_t LiteralCallReader::Word(std::string_view text) {
  const size_t n = std::min(text.find_first_of(is_gemma_ ? ",]}\n" : ",)]} \t\r\n"), text.size());
  word_ += text.substr(0, n);
  if (n < text.size()) {
    EndWord();
    state_ = State::kAfterValue;
  }
  return n;
}

void LiteralCallReader::EndWord() {
  arguments_ += ArgumentJson(word_, kJsonAny);
  word_.clear();
}

void LiteralCallReader::BeginString(char quote) {
  Separate();
  state_ = State::kString;
  quote_ = quote;
  arguments_ += '"';
}

size_t LiteralCallReader::String(std::string_view text) {
  size_t n = 0;
  bool closes = false;
  if (is_gemma_) {
    const size_t end = text.find(kGemmaQuote);
    closes = end != std::string_view::npos;
    const size_t n_inside = closes ? end : text.size() - OpenBytes(text, kGemmaQuote);
    arguments_ += EscapedJson(text.substr(0, n_inside));
    n = closes ? end + kGemmaQuote.size() : n_inside;
  } else if (text[0] == quote_) {
    closes = true;
    n = 1;
  } else {
    return PythonString(text);
  }
  if (closes) {
    arguments_ += '"';
    state_ = is_key_ ? State::kColon : State::kAfterValue;
  }
  return n;
}

// Takes what comes before the quote: text without escapes, or one escape.
size_t LiteralCallReader::PythonString(std::string_view text) {
  if (text[0] != '\\') {
    const char ends[] = {'\\', quote_};
    const size_t n = std::min(text.find_first_of(std::string_view(ends, 2)), text.size());
    arguments_ += EscapedJson(text.substr(0, n));
    return n;
  }
  if (text.size() < 2) return 0;
  const char c = text[1];
  const size_t n_hex = c == 'x' ? 2 : c == 'u' ? 4 : 0;
  const size_t n_have = std::find_if_not(text.begin() + 2, text.end(), IsHex) - text.begin() - 2;
  if (n_hex > 0 && n_have >= n_hex) {
    arguments_ += (c == 'x' ? "\\u00" : "\\u") + std::string(text.substr(2, n_hex));
    return 2 + n_hex;
  }
  if (n_hex > 0 && 2 + n_have == text.size()) return 0;
  if (c == '\'') {
    arguments_ += '\'';
  } else if (std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
    arguments_ += text.substr(0, 2);
  } else {
    // No escape of both JSON and Python: Python keeps the backslash of unknown ones.
    arguments_ += "\\\\";
    return 1;
  }
  return 2;
}

size_t LiteralCallReader::AfterValue(char c) {
  if (c == ',') {
    has_comma_ = true;
    state_ = stack_.back() == '[' ? State::kItemOrEnd : State::kKeyOrEnd;
    return 1;
  }
  if (c == Closing(stack_.back())) {
    Close();
    return 1;
  }
  Fail();
  return 0;
}

void LiteralCallReader::Open(char c) {
  if (stack_.size() >= kMaxDepth) return Fail();
  Separate();
  stack_ += c;
  arguments_ += c == '[' ? '[' : '{';
  state_ = c == '[' ? State::kItemOrEnd : State::kKeyOrEnd;
}

void LiteralCallReader::Close() {
  has_comma_ = false;  // Python allows a comma in front of the bracket
  arguments_ += stack_.back() == '[' ? ']' : '}';
  stack_.pop_back();
  state_ = State::kAfterValue;
  if (!stack_.empty()) return;
  named_ = true;
  state_ = State::kDone;
}

void LiteralCallReader::Separate() {
  if (has_comma_) arguments_ += ", ";
  has_comma_ = false;
}

void LiteralCallReader::Fail() {
  // What has come of the arguments becomes valid JSON.
  const bool in_members = !stack_.empty() && stack_.back() != '[';
  if (state_ == State::kColon) arguments_ += ": ";
  if (state_ == State::kColon || (state_ == State::kValue && in_members)) arguments_ += "null";
  for (; !stack_.empty(); stack_.pop_back()) arguments_ += stack_.back() == '[' ? ']' : '}';
  state_ = State::kFailed;
}

void LiteralCallReader::End(std::string_view rest) {
  if (state_ == State::kWord) EndWord();
  if (state_ == State::kString) arguments_ += EscapedJson(rest);
}

}  // namespace stagecoach::router
