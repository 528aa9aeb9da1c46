#include "router/replicas/prefix_index.h"

#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "common/kv_block.h"

namespace stagecoach::router {

PrefixIndex::Blocks PrefixIndex::BlocksOf(const std::string& salt,
                                          std::span<const int32_t> tokens) {
  Blocks blocks;
  blocks.reserve(tokens.size() / kKvBlockTokens);
  uint64_t before = absl::HashOf(salt);
  while (tokens.size() >= kKvBlockTokens) {
    const auto block = tokens.first(kKvBlockTokens);
    before = absl::HashOf(before, absl::MakeConstSpan(block.data(), block.size()));
    blocks.push_back(before);
    tokens = tokens.subspan(kKvBlockTokens);
  }
  return blocks;
}

size_t PrefixIndex::NRemembered(const Blocks& blocks) const {
  size_t n = 0;
  while (n < blocks.size() && places_.contains(blocks[n])) ++n;
  return n;
}

void PrefixIndex::Use(const Blocks& blocks) {
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    const auto [place, is_new] = places_.try_emplace(*block);
    if (is_new) {
      last_used_.push_front(*block);
      place->second = last_used_.begin();
    } else {
      last_used_.splice(last_used_.begin(), last_used_, place->second);
    }
  }
  while (last_used_.size() > n_most_) {
    places_.erase(last_used_.back());
    last_used_.pop_back();
  }
}

void PrefixIndex::Clear() {
  last_used_.clear();
  places_.clear();
}

}  // namespace stagecoach::router
