#include "worker/loader/tensor_problems.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

namespace stagecoach::worker {
namespace {

// Splits "a.12.b" into "a.{}.b" and 12; -1 where there is no number.
int32_t TakeLayer(std::string_view name, std::string* pattern) {
  size_t begin = 0;
  while (begin < name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    int32_t layer = 0;
    const auto [rest, error] = std::from_chars(name.data() + begin, name.data() + end, layer);
    if (error == std::errc() && rest == name.data() + end) {
      *pattern = fmt::format("{}{{}}{}", name.substr(0, begin), name.substr(end));
      return layer;
    }
    begin = end + 1;
  }
  *pattern = name;
  return -1;
}

// "0-3, 7"
std::string Ranges(const std::vector<int32_t>& layers) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < layers.size();) {
    size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    parts.push_back(last == i ? fmt::format("{}", layers[i])
                              : fmt::format("{}-{}", layers[i], layers[last]));
    i = last + 1;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

void TensorProblems::Add(std::string_view tensor, std::string_view text) {
  Group group;
  const int32_t layer = TakeLayer(tensor, &group.tensor);
  group.text = text;
  const auto [entry, is_new] = index_.try_emplace({group.tensor, group.text}, groups_.size());
  if (is_new) groups_.push_back(std::move(group));
  if (layer >= 0) groups_[entry->second].layers.push_back(layer);
}

std::string TensorProblems::Describe(size_t max_groups) const {
  std::vector<std::string> lines;
  for (const Group& group : groups_) {
    if (lines.size() == max_groups) {
      lines.push_back(fmt::format("and {} more", groups_.size() - max_groups));
      break;
    }
    std::string name = group.tensor;
    if (const size_t at = name.find("{}"); at != name.npos && !group.layers.empty()) {
      const std::string layers = Ranges(group.layers);
      const bool one = group.layers.size() == 1;
      name.replace(at, 2, one ? layers : fmt::format("{{{}}}", layers));
    }
    lines.push_back(fmt::format("{}: {}", name, group.text));
  }
  return fmt::format("{}", fmt::join(lines, "; "));
}

}  // namespace stagecoach::worker
