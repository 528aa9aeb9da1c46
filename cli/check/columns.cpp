#include "cli/check/columns.h"

#include <algorithm>

namespace stagecoach::check {
namespace {

constexpr size_t kIndent = 2;
constexpr size_t kGap = 2;

// Number of characters in a UTF-8 text; a wide character counts as one.
size_t Width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// Breaks lines at spaces; leading spaces of `text` are kept.
void WrapLine(std::string_view text, size_t width, std::vector<std::string>& lines) {
  std::string line(text.substr(0, std::min(text.find_first_not_of(' '), text.size())));
  text.remove_prefix(line.size());
  bool fresh = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (!fresh && Width(line) + 1 + Width(word) > width) {
      lines.push_back(std::move(line));
      line.clear();
      fresh = true;
    }
    if (!fresh) line += ' ';
    line += word;
    fresh = false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  lines.push_back(std::move(line));
}

std::vector<std::string> Wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  while (true) {
    const size_t end = std::min(text.find('\n'), text.size());
    WrapLine(text.substr(0, end), width, lines);
    if (end == text.size()) return lines;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

void Columns::Add(std::string_view name, std::string_view text) {
  rows_.push_back({std::string(name), std::string(text)});
}

std::string Columns::Text() const {
  size_t names = 0;
  for (const Row& row : rows_) names = std::max(names, Width(row.name));
  const size_t margin = kIndent + names + kGap;
  // On a narrow terminal the text column still has 20 columns.
  const size_t room = width_ > margin + 20 ? width_ - margin : 20;
  std::string text;
  for (const Row& row : rows_) {
    std::string lead = std::string(kIndent, ' ') + row.name;
    for (const std::string& line : Wrap(row.text, room)) {
      lead.resize(lead.size() + margin - Width(lead), ' ');
      text += lead + line + '\n';
      lead.clear();
    }
  }
  return text;
}

}  // namespace stagecoach::check
