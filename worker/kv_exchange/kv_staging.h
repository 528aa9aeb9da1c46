// Device memory through which KV blocks come from host memory while a step computes.
//
// Blocks in host memory have the order that is the same for all devices, so they cannot be copied
// into the KV cache as they are. Copying them here takes as long as the bus needs, beside the step.
// From here the next step copies them into the cache, at the speed of device memory.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "common/kv_beside.h"
#include "kernels/ops.h"
#include "worker/kv_exchange/kv_pool.h"

namespace stagecoach::worker {

// Thread of Ops.
class KvStaging {
 public:
  // Memory for kMostBlocksBeside blocks. Pool and ops outlive it.
  static absl::StatusOr<KvStaging> Make(const KvPool* pool, kernels::Ops* ops);

  // Copies at most kMostBlocksBeside places of the pool to places 0, 1, ... here, after what the
  // device does already and beside what follows.
  void Begin(std::span<const uint32_t> places);
  // The device does what follows after these copies.
  void Join() { ops_->JoinCopies(); }
  // Address of a part of place 0. Places have the pool's size.
  unsigned char* at(size_t part) const {
    return memory_.As<unsigned char>() + (pool_->at(part) - pool_->at(0));
  }

 private:
  KvStaging(const KvPool* pool, kernels::Ops* ops, kernels::Buffer memory)
      : pool_(pool), ops_(ops), memory_(std::move(memory)) {}

  const KvPool* pool_;
  kernels::Ops* ops_;
  kernels::Buffer memory_;
};

}  // namespace stagecoach::worker
