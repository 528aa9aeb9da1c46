// Which prompts a replica was given lately, so that requests which begin alike go to the same
// replica. It guesses what the replica's prefix cache holds: a wrong guess costs time, never
// correctness.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace stagecoach::router {

// Not thread-safe.
class PrefixIndex {
 public:
  // One hash per full block of kKvBlockTokens tokens. It stands for the block and all that comes
  // before it, under `salt`.
  using Blocks = std::vector<uint64_t>;
  static Blocks BlocksOf(const std::string& salt, std::span<const int32_t> tokens);

  // n_most: blocks to remember, as many as the replica's KV cache has.
  explicit PrefixIndex(uint64_t n_most) : n_most_(n_most) {}
  // A copy's places would be those of the original.
  PrefixIndex(PrefixIndex&&) = default;
  PrefixIndex& operator=(PrefixIndex&&) = default;

  // The number of blocks at the beginning of `blocks` that are remembered.
  size_t NRemembered(const Blocks& blocks) const;
  // Remembers the blocks, and forgets those that were used longest ago. The end of a prompt is
  // forgotten before its beginning, as in the cache itself.
  void Use(const Blocks& blocks);
  void Clear();
  size_t n_blocks() const { return last_used_.size(); }

 private:
  uint64_t n_most_;
  std::list<uint64_t> last_used_;  // the latest first
  absl::flat_hash_map<uint64_t, std::list<uint64_t>::iterator> places_;
};

}  // namespace stagecoach::router
