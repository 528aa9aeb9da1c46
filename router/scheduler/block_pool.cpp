#include "router/scheduler/block_pool.h"

#include "common/check.h"

namespace stagecoach::router {

BlockPool::BlockPool(uint32_t n_blocks) : held_(n_blocks, false) {
  free_.reserve(n_blocks);
  for (uint32_t id = n_blocks; id > 0; --id) free_.push_back(id - 1);
}

uint32_t BlockPool::Take() {
  SC_CHECK(!free_.empty());
  const uint32_t id = free_.back();
  free_.pop_back();
  SC_CHECK(!held_[id]);
  held_[id] = true;
  return id;
}

void BlockPool::Return(uint32_t id) {
  SC_CHECK(id < held_.size() && held_[id]);
  held_[id] = false;
  free_.push_back(id);
}

void BlockPool::Return(std::span<const uint32_t> ids) {
  for (uint32_t id : ids) Return(id);
}

}  // namespace stagecoach::router
