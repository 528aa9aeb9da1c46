// Host memory for KV blocks on their way between the device and the store: a bounded number of
// blocks, taken in runs.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "common/mutex.h"
#include "kernels/op_args.h"

namespace stagecoach::worker {

// Thread-safe.
class KvMemory {
 public:
  // Consecutive blocks. Goes back to the memory, which outlives it, when it is destroyed.
  class Run {
   public:
    Run() = default;
    Run(Run&& other) noexcept { *this = std::move(other); }
    Run& operator=(Run&& other) noexcept;
    ~Run() { Return(); }

    uint32_t n_blocks() const { return n_; }
    // n_blocks() times the block's size.
    unsigned char* data() const;

   private:
    friend class KvMemory;
    Run(KvMemory* memory, uint32_t first, uint32_t n) : memory_(memory), first_(first), n_(n) {}
    void Return();

    KvMemory* memory_ = nullptr;
    uint32_t first_ = 0, n_ = 0;
  };

  // memory: for at least one block of block_bytes.
  KvMemory(kernels::Buffer memory, uint64_t block_bytes);

  // The first run of this many free blocks, or else the longest one, which may be empty. n > 0.
  Run TakeUpTo(uint32_t n);
  uint32_t n_total() const { return n_total_; }
  uint32_t n_free() const;

 private:
  const kernels::Buffer memory_;
  const uint64_t block_bytes_;
  const uint32_t n_total_;
  mutable Mutex mutex_;
  std::map<uint32_t, uint32_t> free_ ABSL_GUARDED_BY(mutex_);  // runs: first block, length
};

}  // namespace stagecoach::worker
