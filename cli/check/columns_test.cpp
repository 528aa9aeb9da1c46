#include "cli/check/columns.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::check {
namespace {

TEST_CASE("text is wrapped to the right of the widest name") {
  Columns columns(36);
  columns.Add("a", "one");
  columns.Add("name", "words that do not fit into one line\nanother");
  CHECK(columns.Text() ==
        "  a     one\n"
        "  name  words that do not fit into\n"
        "        one line\n"
        "        another\n");
}

TEST_CASE("widths are in characters, not bytes, and a long word is not split") {
  Columns columns(31);
  columns.Add("é", "äöü äöü äöü äöü äöü äöü äöü");
  columns.Add("x", "/a/path/that/is/longer/than/the/column is here");
  CHECK(columns.Text() ==
        "  é  äöü äöü äöü äöü äöü äöü\n"
        "     äöü\n"
        "  x  /a/path/that/is/longer/than/the/column\n"
        "     is here\n");
}

TEST_CASE("a row with an empty name continues the row above") {
  Columns columns(40);
  columns.Add("memory", "stage 0");
  columns.Add("", "stage 1");
  CHECK(columns.Text() == "  memory  stage 0\n          stage 1\n");
}

}  // namespace
}  // namespace stagecoach::check
