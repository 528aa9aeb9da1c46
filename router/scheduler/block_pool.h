// The block ids of one KV group: how many holders each has, and which are free. Ids are virtual:
// every stage has a block with this id in each of its layers.
#pragma once

#include <cstdint>
#include <vector>

namespace stagecoach::router {

// Not thread-safe. An id is either free, or held by one or more holders. Some free ids are kept:
// their contents may be reused (prefix cache). Take() returns kept ids only when there are no other
// free ones, and the one that has been free longest first.
class BlockPool {
 public:
  // Ids 0 .. n_blocks - 1, all free, none kept.
  explicit BlockPool(uint32_t n_blocks);

  uint32_t n_total() const { return static_cast<uint32_t>(n_holders_.size()); }
  uint32_t n_free() const { return static_cast<uint32_t>(free_.size()) + n_kept_; }
  uint32_t n_holders(uint32_t id) const { return n_holders_[id]; }

  struct Taken {
    uint32_t id;
    bool was_kept;
  };
  // REQUIRES: n_free() > 0.
  Taken Take();
  // Adds a holder. REQUIRES: `id` is held, or free and kept.
  void Share(uint32_t id);
  // Removes a holder. REQUIRES: `id` is held. keep: if `id` becomes free, keep its contents.
  void Return(uint32_t id, bool keep);
  // Its contents are void. REQUIRES: `id` is free and kept.
  void Discard(uint32_t id);

 private:
  void Link(uint32_t id);
  void Unlink(uint32_t id);

  // Free and not kept. Take() returns the most recently returned first: its memory is likeliest
  // cached.
  std::vector<uint32_t> free_;
  std::vector<uint32_t> n_holders_;  // by id
  // Doubly linked ring of the kept ids, indexed by id, in the order in which they became free. The
  // extra entry at the end is the ring's sentinel.
  struct Neighbours {
    uint32_t before, after;
  };
  std::vector<Neighbours> kept_;
  uint32_t n_kept_ = 0;
};

}  // namespace stagecoach::router
