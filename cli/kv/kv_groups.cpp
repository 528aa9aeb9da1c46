#include "cli/kv/kv_groups.h"

#include <algorithm>
#include <ranges>

namespace stagecoach::cli::kv {

void Groups::Add(std::span<const worker::StoredKv> values) {
  for (const worker::StoredKv& value : values) {
    Counted& counted = by_size_[value.bytes];
    Group& group = counted.group;
    group.value_bytes = value.bytes;
    group.layers.insert(value.key.layer);
    group.total.Add(value);
    counted.n_layers[value.key.block] += 1;
    if (!value.age) continue;
    group.newest = std::min(group.newest.value_or(*value.age), *value.age);
    group.oldest = std::max(group.oldest.value_or(*value.age), *value.age);
  }
}

std::vector<Group> Groups::Get() const {
  std::vector<Group> groups;
  for (const Counted& counted : by_size_ | std::views::values) {
    Group& group = groups.emplace_back(counted.group);
    group.n_blocks = counted.n_layers.size();
    group.n_whole = static_cast<uint64_t>(
        std::ranges::count(counted.n_layers | std::views::values, group.layers.size()));
  }
  std::ranges::stable_sort(groups, std::greater<>(),
                           [](const Group& group) { return group.total.bytes; });
  return groups;
}

Total Groups::total() const {
  Total total;
  for (const Counted& counted : by_size_ | std::views::values) {
    total.n_values += counted.group.total.n_values;
    total.bytes += counted.group.total.bytes;
  }
  return total;
}

uint64_t Groups::n_blocks() const {
  std::set<Block> blocks;
  for (const Counted& counted : by_size_ | std::views::values) {
    for (const Block& block : counted.n_layers | std::views::keys) blocks.insert(block);
  }
  return blocks.size();
}

}  // namespace stagecoach::cli::kv
