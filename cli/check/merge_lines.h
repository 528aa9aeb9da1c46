// Lines that say the same of several tensors.
#pragma once

#include <string>
#include <vector>

namespace stagecoach::check {

// "a: missing", "b: missing", "c: other" become "a, b: missing", "c: other", in the order of first
// appearance; of many names the first few stay.
std::vector<std::string> MergeLines(const std::vector<std::string>& lines);

}  // namespace stagecoach::check
