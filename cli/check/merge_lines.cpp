#include "cli/check/merge_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

namespace stagecoach::check {
namespace {

constexpr size_t kMaxNames = 3;

struct Group {
  std::vector<std::string_view> names;
  std::string_view text;
};

}  // namespace

std::vector<std::string> MergeLines(const std::vector<std::string>& lines) {
  std::vector<Group> groups;
  for (const std::string_view line : lines) {
    const size_t colon = line.find(": ");
    if (colon == line.npos) {
      groups.push_back({.names = {}, .text = line});
      continue;
    }
    const std::string_view name = line.substr(0, colon), text = line.substr(colon + 2);
    const auto same = std::find_if(groups.begin(), groups.end(), [text](const Group& group) {
      return !group.names.empty() && group.text == text;
    });
    if (same == groups.end()) {
      groups.push_back({.names = {name}, .text = text});
    } else {
      same->names.push_back(name);
    }
  }
  std::vector<std::string> merged;
  for (Group& group : groups) {
    const size_t n_more = group.names.size() - std::min(group.names.size(), kMaxNames);
    group.names.resize(group.names.size() - n_more);
    const std::string more = n_more == 0 ? "" : fmt::format(" and {} more", n_more);
    merged.push_back(group.names.empty()
                         ? std::string(group.text)
                         : fmt::format("{}{}: {}", fmt::join(group.names, ", "), more, group.text));
  }
  return merged;
}

}  // namespace stagecoach::check
