// KV blocks in host memory, after the device has reused their place. The block that was used
// longest ago gives way to a new one. A block is of use only with all blocks before it, so callers
// name the last block of a sequence first: then it gives way first.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/mutex.h"
#include "worker/kv_exchange/kv_blocks.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

// Thread-safe. Copies within the process need no checksum; tokens are compared, as in the store.
class KvHostTier {
 public:
  // For as many blocks as fit into `bytes`, at least one. The parts outlive this.
  KvHostTier(uint64_t bytes, const std::vector<KvPart>* parts);

  // The block counts as used now.
  void Put(const KvBlockName& name, const KvBlocks& from, uint32_t block);
  // Copies the block to `to`. False: it is not here.
  bool Get(const KvBlockName& name, const KvBlocks& to, uint32_t block) const;
  // The block counts as used now, if it is here.
  void Touch(const KvBlockName& name);
  uint64_t n_blocks() const;

 private:
  using Key = std::array<uint8_t, 16>;
  struct Entry {
    KvBlockName name;
    uint64_t place = 0;  // of the block in memory_
  };
  unsigned char* At(const Entry& entry) const { return memory_.get() + entry.place * block_bytes_; }

  const std::vector<KvPart>& parts_;
  const uint64_t block_bytes_;
  const uint64_t most_blocks_;
  // The kernel provides pages when they are written first.
  const std::unique_ptr<unsigned char[]> memory_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // used last first
  absl::flat_hash_map<Key, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::worker
