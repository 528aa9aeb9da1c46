#include "router/scheduler/block_pool.h"

#include "common/check.h"

namespace stagecoach::router {

BlockPool::BlockPool(uint32_t n_blocks) : n_holders_(n_blocks, 0), kept_(n_blocks + 1) {
  free_.reserve(n_blocks);
  for (uint32_t id = n_blocks; id > 0; --id) free_.push_back(id - 1);
  kept_[n_blocks] = {n_blocks, n_blocks};
}

void BlockPool::Link(uint32_t id) {
  const uint32_t end = n_total(), last = kept_[end].before;
  kept_[id] = {last, end};
  kept_[last].after = id;
  kept_[end].before = id;
  ++n_kept_;
}

void BlockPool::Unlink(uint32_t id) {
  const auto [before, after] = kept_[id];
  kept_[before].after = after;
  kept_[after].before = before;
  --n_kept_;
}

BlockPool::Taken BlockPool::Take() {
  Taken taken{};
  if (!free_.empty()) {
    taken = {free_.back(), false};
    free_.pop_back();
  } else {
    SC_CHECK(n_kept_ > 0);
    taken = {kept_[n_total()].after, true};
    Unlink(taken.id);
  }
  SC_CHECK(n_holders_[taken.id] == 0);
  n_holders_[taken.id] = 1;
  return taken;
}

void BlockPool::Share(uint32_t id) {
  if (n_holders_[id] == 0) Unlink(id);
  ++n_holders_[id];
}

void BlockPool::Return(uint32_t id, bool keep) {
  SC_CHECK(id < n_holders_.size() && n_holders_[id] > 0);
  if (--n_holders_[id] > 0) return;
  if (keep) {
    Link(id);
  } else {
    free_.push_back(id);
  }
}

void BlockPool::Discard(uint32_t id) {
  SC_CHECK(n_holders_[id] == 0);
  Unlink(id);
  free_.push_back(id);
}

}  // namespace stagecoach::router
