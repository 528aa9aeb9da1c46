// One KV group's block ids: who holds them, and which may be taken. Ids are virtual: every stage
// has a block of this id in each of its layers.
#pragma once

#include <cstdint>
#include <vector>

namespace stagecoach::router {

// Not thread-safe. An id is at all times either free or held, by one or by several; of the free
// ones some are kept: what they hold may be wanted again, so they are taken last, the longest free
// first.
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
  // One more holder. REQUIRES: `id` is held, or free and kept.
  void Share(uint32_t id);
  // One holder less. REQUIRES: `id` is held. keep: should it be free then.
  void Return(uint32_t id, bool keep);

 private:
  void Link(uint32_t id);
  void Unlink(uint32_t id);

  std::vector<uint32_t>
      free_;  // not kept; the most recently returned is taken first: its memory is likeliest cached
  std::vector<uint32_t> n_holders_;  // by id
  // A ring of those kept, by id, with one more that is its beginning and end.
  struct Neighbours {
    uint32_t before, after;
  };
  std::vector<Neighbours> kept_;
  uint32_t n_kept_ = 0;
};

}  // namespace stagecoach::router
