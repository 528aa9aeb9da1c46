#include "cli/check/merge_lines.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::check {
namespace {

using Lines = std::vector<std::string>;

TEST_CASE("names with the same text share one line") {
  CHECK(MergeLines({"a: missing", "c: has shape [1]: wrong", "b: missing"}) ==
        Lines{"a, b: missing", "c: has shape [1]: wrong"});
  CHECK(MergeLines({"v.0: x", "v.1: x", "v.2: x", "v.3: x", "v.4: x"}) ==
        Lines{"v.0, v.1, v.2 and 2 more: x"});
}

TEST_CASE("a line without a name is not changed") {
  CHECK(MergeLines({"2 tensors of an adapter", "2 tensors of an adapter"}) ==
        Lines{"2 tensors of an adapter", "2 tensors of an adapter"});
  CHECK(MergeLines({}).empty());
}

}  // namespace
}  // namespace stagecoach::check
