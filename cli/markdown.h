// Shows Markdown on a terminal while it arrives: headings and strong text in bold, code in colour,
// list items with a dot. Everything else stays as it was written.
#pragma once

#include <string>
#include <string_view>

namespace stagecoach::cli {

// Text goes in as pieces, and what to print comes out. The output does not depend on how the text
// is cut into pieces. A piece may hold back its last characters until the next one tells what they
// mean.
class Markdown {
 public:
  std::string Push(std::string_view piece);
  // What was held back, and the end of all styles.
  std::string End();

 private:
  enum class Place { kLineStart, kInline, kCodeLine };

  void Step(char c);
  void LineStart(char c);
  void CodeStart(char c);
  void Inline(char c);
  // Ends a run of marks, `marks_`, before the character `next`.
  void Resolve(char next);
  void EndLine();
  void Emit(std::string_view text);
  // Writes the codes of the styles that are on.
  void Restyle();

  std::string out_;
  Place place_ = Place::kLineStart;
  std::string held_;      // the start of a line
  std::string marks_;     // a run of one of * _ `
  char before_ = '\n';    // the last character that was printed of this line
  bool in_code_ = false;  // between two fences
  bool is_heading_ = false, is_bold_ = false, is_italic_ = false, is_code_ = false;
};

}  // namespace stagecoach::cli
