#include "worker/loader/tensor_problems.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace stagecoach::worker {
namespace {

// Splits "a.12.b.3.c" into the pattern "a.{}.b.{}.c" and the numbers 12 and 3.
std::vector<int32_t> TakeNumbers(std::string_view name, std::string* pattern) {
  std::vector<int32_t> numbers;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    int32_t number = 0;
    const auto [rest, error] = std::from_chars(name.data() + begin, name.data() + end, number);
    const bool is_number = error == std::errc() && rest == name.data() + end && number >= 0;
    if (begin > 0) *pattern += '.';
    *pattern += is_number ? "{}" : name.substr(begin, end - begin);
    if (is_number) numbers.push_back(number);
    begin = end + 1;
  }
  return numbers;
}

// Returns "7" or "{0-3, 7}", for example.
std::string Ranges(const std::set<int32_t>& numbers) {
  std::vector<std::string> parts;
  for (auto next = numbers.begin(); next != numbers.end();) {
    const int32_t first = *next;
    int32_t last = first;
    for (++next; next != numbers.end() && *next == last + 1; ++next) last = *next;
    parts.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  }
  const std::string all = fmt::format("{}", fmt::join(parts, ", "));
  return numbers.size() == 1 ? all : fmt::format("{{{}}}", all);
}

}  // namespace

void TensorProblems::Add(std::string_view tensor, std::string_view text) {
  Group group;
  const std::vector<int32_t> numbers = TakeNumbers(tensor, &group.tensor);
  group.text = text;
  group.numbers.resize(numbers.size());
  const auto [entry, is_new] = index_.try_emplace({group.tensor, group.text}, groups_.size());
  if (is_new) groups_.push_back(std::move(group));
  Group& to = groups_[entry->second];
  ++to.n_tensors;
  // A name in the file may contain "{}" itself, and then has another count of numbers.
  for (size_t i = 0; i < std::min(numbers.size(), to.numbers.size()); ++i) {
    to.numbers[i].insert(numbers[i]);
  }
}

std::vector<std::string> TensorProblems::Lines() const {
  std::vector<std::string> lines;
  for (const Group& group : groups_) {
    std::string name = group.tensor;
    size_t at = 0;
    for (const std::set<int32_t>& numbers : group.numbers) {
      at = name.find("{}", at);
      if (at == name.npos) break;
      const std::string ranges = Ranges(numbers);
      name.replace(at, 2, ranges);
      at += ranges.size();
    }
    if (group.n_tensors > 1) name += fmt::format(" ({})", group.n_tensors);
    lines.push_back(fmt::format("{}: {}", name, group.text));
  }
  return lines;
}

std::string TensorProblems::Describe(size_t max_groups) const {
  std::vector<std::string> lines = Lines();
  if (lines.size() > max_groups) {
    const size_t n_more = lines.size() - max_groups;
    lines.resize(max_groups);
    lines.push_back(fmt::format("and {} more", n_more));
  }
  return fmt::format("{}", fmt::join(lines, "; "));
}

}  // namespace stagecoach::worker
