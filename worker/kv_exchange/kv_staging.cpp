#include "worker/kv_exchange/kv_staging.h"

#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status.h"

namespace stagecoach::worker {

absl::StatusOr<KvStaging> KvStaging::Make(const KvPool* pool, kernels::Ops* ops) {
  SC_ASSIGN_OR_RETURN(kernels::Buffer memory,
                      ops->Allocate(size_t{kMostBlocksBeside} * pool->place_bytes()));
  return KvStaging(pool, ops, std::move(memory));
}

void KvStaging::Begin(std::span<const uint32_t> places) {
  SC_CHECK(places.size() <= size_t{kMostBlocksBeside});
  const size_t bytes = pool_->place_bytes();
  std::vector<kernels::HostCopy> copies;
  for (size_t i = 0; i < places.size(); ++i) {
    // Blocks that were saved together lie together.
    if (i > 0 && places[i] == places[i - 1] + 1) {
      copies.back().bytes += bytes;
      continue;
    }
    copies.push_back({.host = pool_->at(0) + places[i] * bytes,
                      .device = memory_.As<unsigned char>() + i * bytes,
                      .bytes = bytes});
  }
  ops_->CopyBeside(copies);
}

}  // namespace stagecoach::worker
