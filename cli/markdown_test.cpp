#include "cli/markdown.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::cli {
namespace {

// The output for pieces of one byte, which must be that of the whole. Styles are letters in angle
// brackets.
std::string Shown(const std::string& text) {
  Markdown whole, bytes;
  std::string at_once = whole.Push(text);
  at_once += whole.End();
  std::string slowly;
  for (const char c : text) slowly += bytes.Push(std::string(1, c));
  slowly += bytes.End();
  CHECK(slowly == at_once);
  std::string readable;
  for (size_t i = 0; i < at_once.size(); ++i) {
    if (at_once[i] != '\x1b') {
      readable += at_once[i];
      continue;
    }
    const size_t end = at_once.find('m', i);
    const std::string code = at_once.substr(i + 2, end - i - 2);
    readable += code == "0"    ? "<>"
                : code == "1"  ? "<b>"
                : code == "2"  ? "<dim>"
                : code == "3"  ? "<i>"
                : code == "36" ? "<code>"
                               : "<?>";
    i = end;
  }
  return readable;
}

TEST_CASE("plain text stays as it is") {
  for (const char* text :
       {"", "Hello, world.\nA second line\n", "2 * 3 * 4 = 24", "a*b*c, snake_case_name, __init__",
        "#hashtag", "-5 degrees", "   ", "a ` b", "--- \n", "1. one\n2. two\n", "100 %"}) {
    CHECK(Shown(text) == text);
  }
}

TEST_CASE("headings, strong text, code and lists are shown") {
  CHECK(Shown("## Title\ntext") == "<><b>Title<>\ntext");
  CHECK(Shown("a **b c** d") == "a <><b>b c<> d");
  CHECK(Shown("*note* and _note_.") == "<><i>note<> and <><i>note<>.");
  CHECK(Shown("call `f(*x)` now") == "call <><code>f(*x)<> now");
  CHECK(Shown("- one\n  * two\n") == "• one\n  • two\n");
  CHECK(Shown("> said\n") == "<dim>│ <>said\n");
  CHECK(Shown("# A **b** c\n") == "<><b>A <><b>b<><b> c<>\n");
}

TEST_CASE("a code block is left alone inside") {
  CHECK(Shown("```cpp\nint *a; // **x**\n\n```\nend **b**") ==
        "<dim>```cpp<>\n<code>int *a; // **x**<>\n<code><>\n<dim>```<>\nend <><b>b<>");
}

TEST_CASE("a style ends with its line, and everything with the text") {
  CHECK(Shown("**open\nnext") == "<><b>open<>\nnext");
  CHECK(Shown("```\ncode") == "<dim>```<>\n<code>code<>");
  CHECK(Shown("a **") == "a **");
}

}  // namespace
}  // namespace stagecoach::cli
