// Free list of one KV group's block ids. Ids are virtual: every stage has a block of this id in
// each of its layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stagecoach::router {

// Not thread-safe. Every id is at all times either free or held by exactly one owner.
class BlockPool {
 public:
  // Ids 0 .. n_blocks - 1, all free.
  explicit BlockPool(uint32_t n_blocks);

  uint32_t n_total() const { return static_cast<uint32_t>(held_.size()); }
  uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }

  // REQUIRES: n_free() > 0.
  uint32_t Take();
  // REQUIRES: `id` is held.
  void Return(uint32_t id);
  void Return(std::span<const uint32_t> ids);

 private:
  std::vector<uint32_t>
      free_;  // the most recently returned is taken first: its memory is likeliest still cached
  std::vector<bool> held_;  // by id
};

}  // namespace stagecoach::router
