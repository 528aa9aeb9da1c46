#include "cli/markdown.h"

#include <cctype>
#include <utility>

namespace stagecoach::cli {
namespace {

constexpr char kReset[] = "\x1b[0m";
constexpr char kDim[] = "\x1b[2m";
constexpr char kCode[] = "\x1b[36m";
constexpr std::string_view kFence = "```";
constexpr size_t kMostIndent = 12;

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n'; }
// Bytes of other letters than ASCII's count, too.
bool IsWord(char c) { return (c & 0x80) != 0 || std::isalnum(static_cast<unsigned char>(c)) != 0; }

// The text behind the indentation.
std::string_view Unindented(std::string_view line) {
  const size_t begin = line.find_first_not_of(" \t");
  return begin == std::string_view::npos ? "" : line.substr(begin);
}

}  // namespace

std::string Markdown::Push(std::string_view piece) {
  for (const char c : piece) Step(c);
  return std::exchange(out_, "");
}

std::string Markdown::End() {
  if (place_ == Place::kLineStart && in_code_) Emit(held_);
  if (place_ == Place::kLineStart && !in_code_) {
    for (const char c : std::exchange(held_, "")) Inline(c);
  }
  EndLine();
  const std::string last = std::exchange(out_, "");
  *this = Markdown();
  return last;
}

void Markdown::Step(char c) {
  switch (place_) {
    case Place::kLineStart:
      return in_code_ ? CodeStart(c) : LineStart(c);
    case Place::kInline:
      return Inline(c);
    case Place::kCodeLine:
      if (c == '\n') Emit(kReset);
      out_ += c;
      if (c == '\n') place_ = Place::kLineStart;
  }
}

void Markdown::CodeStart(char c) {
  held_ += c;
  const std::string_view text = Unindented(held_);
  const bool may_be_fence = kFence.starts_with(text) || text.starts_with(kFence);
  if (c != '\n' && may_be_fence) return;
  if (text.starts_with(kFence)) {
    in_code_ = false;
    held_.pop_back();
    out_ += kDim + std::exchange(held_, "") + kReset + "\n";
    return;
  }
  out_ += kCode;
  place_ = Place::kCodeLine;
  for (const char one : std::exchange(held_, "")) Step(one);
}

void Markdown::LineStart(char c) {
  held_ += c;
  const std::string_view text = Unindented(held_);
  const std::string indent = held_.substr(0, held_.size() - text.size());
  if (text.starts_with(kFence)) {
    if (c != '\n') return;
    in_code_ = true;
    held_.pop_back();
    out_ += kDim + std::exchange(held_, "") + kReset + "\n";
    return;
  }
  const auto begin = [&](std::string_view instead) {
    held_.clear();
    out_ += indent;
    out_ += instead;
    place_ = Place::kInline;
    before_ = ' ';
  };
  if (c != '\n' && text.empty() && held_.size() <= kMostIndent) return;
  if (!text.empty() && (kFence.starts_with(text) || text == ">")) return;
  if (text == "-" || text == "*" || text == "+") return;
  if (text == "- " || text == "* " || text == "+ ") return begin("• ");
  if (text == "> ") return begin(std::string(kDim) + "│ " + kReset);
  const size_t n_marks = text.find_first_not_of('#');
  if (n_marks == std::string_view::npos && !text.empty() && text.size() <= 6) return;
  if (n_marks != std::string_view::npos && n_marks > 0 && text.substr(n_marks) == " ") {
    is_heading_ = true;
    begin("");
    return Restyle();
  }
  place_ = Place::kInline;
  for (const char one : std::exchange(held_, "")) Step(one);
}

void Markdown::Inline(char c) {
  const bool is_mark = c == '`' || (!is_code_ && (c == '*' || c == '_'));
  if (is_mark && (marks_.empty() || marks_[0] == c)) {
    marks_ += c;
    return;
  }
  Resolve(c);
  if (is_mark) {
    marks_ = c;
  } else if (c == '\n') {
    EndLine();
    out_ += c;
    place_ = Place::kLineStart;
  } else {
    out_ += c;
    before_ = c;
  }
}

void Markdown::Resolve(char next) {
  if (marks_.empty()) return;
  const std::string marks = std::exchange(marks_, "");
  const char mark = marks[0];
  const bool opens = !IsSpace(next), closes = !IsSpace(before_);
  const auto toggle = [&](bool& is_on) {
    is_on = !is_on;
    Restyle();
  };
  if (mark == '`' && (is_code_ || opens)) return toggle(is_code_);
  if (mark == '*' && marks.size() == 2 && (is_bold_ ? closes : opens)) return toggle(is_bold_);
  if (marks.size() == 1 && mark != '`') {
    // Neither 2*3*4 nor snake_case_names are stressed.
    const bool may_open = opens && !IsWord(before_), may_close = closes && !IsWord(next);
    if (is_italic_ ? may_close : may_open) return toggle(is_italic_);
  }
  Emit(marks);
}

void Markdown::EndLine() {
  Resolve('\n');
  const bool has_style = is_heading_ || is_bold_ || is_italic_ || is_code_;
  is_heading_ = is_bold_ = is_italic_ = is_code_ = false;
  if (has_style || place_ == Place::kCodeLine) out_ += kReset;
  before_ = '\n';
}

void Markdown::Emit(std::string_view text) {
  out_ += text;
  if (!text.empty()) before_ = text.back();
}

void Markdown::Restyle() {
  out_ += kReset;
  if (is_heading_ || is_bold_) out_ += "\x1b[1m";
  if (is_italic_) out_ += "\x1b[3m";
  if (is_code_) out_ += kCode;
}

}  // namespace stagecoach::cli
