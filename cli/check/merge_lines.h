// Merges lines that say the same about several tensors.
#pragma once

#include <string>
#include <vector>

namespace stagecoach::check {

// "a: missing", "b: missing", "c: other" become "a, b: missing", "c: other", in the order of first
// appearance. If there are many names, only the first few are kept.
std::vector<std::string> MergeLines(const std::vector<std::string>& lines);

}  // namespace stagecoach::check
