// Values of one kind, KV blocks or recurrent states, in host memory (--host-kv) and in the tiers
// below it: a disk of this machine (--disk-kv) and the store that servers share (--kv-store).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/op_args.h"
#include "worker/kv_exchange/kv_blocks.h"
#include "worker/kv_exchange/kv_pool.h"
#include "worker/kv_exchange/kv_tier.h"

namespace stagecoach::worker {

// Thread-safe.
class TieredPool {
 public:
  using Clock = KvTier::Clock;
  // Without an opener, there is no such tier.
  struct Below {
    KvTier::Source disk, store;
  };
  // Where the values of a fetch came from; the others came from the store.
  struct Counts {
    uint32_t n_host = 0;
    uint32_t n_disk = 0;
  };
  // Seconds that computing so many of the next values would take. 0: unknown.
  using ComputeTime = absl::FunctionRef<double(uint32_t n)>;

  // memory: for at least one value. Fetches come from `n_fetchers` threads. Errors are those of the
  // openers.
  static absl::StatusOr<std::unique_ptr<TieredPool>> Open(kernels::Buffer memory,
                                                          std::vector<KvPart> parts,
                                                          const Below& below, size_t n_fetchers);

  const KvPool& pool() const { return pool_; }
  // Null: there is none.
  const KvTier* disk() const { return disk_.get(); }
  const KvTier* store() const { return store_.get(); }

  // Places for so many values, or fewer. The others count as dropped.
  KvSaving TakeForSave(uint32_t n);
  // The device has filled the places: keeps the values under these names, and queues them for disk
  // and store.
  void Save(KvSaving saving, std::vector<KvBlockName> names);
  // As KvTier::Close, of all tiers at once: their seconds at the end would otherwise add up.
  void Close();

  // The complete values from the first name on. A tier is left alone where computing is faster. The
  // fetcher's thread calls this, and the next one.
  KvPool::Places Collect(size_t fetcher, std::span<const KvBlockName> names,
                         Clock::time_point deadline, ComputeTime compute_time, Counts& counts);
  // The number of names up to the last one with a value; 0: none has one. A tier may have lost the
  // value when it is read.
  uint32_t FindLast(size_t fetcher, std::span<const KvBlockName> names, Clock::time_point deadline,
                    ComputeTime compute_time);

  // As KvTier::Try. REQUIRES: there is a store.
  absl::Status TryStore(size_t fetcher, Clock::time_point deadline) {
    return store_->Try(fetcher, deadline);
  }

  uint32_t n_saving() const { return n_saving_; }  // places
  uint64_t n_dropped() const;

 private:
  TieredPool(kernels::Buffer memory, std::vector<KvPart> parts)
      : pool_(std::move(memory), std::move(parts)) {}

  KvPool pool_;
  std::atomic<uint32_t> n_saving_{0};
  std::atomic<uint64_t> n_without_place_{0};
  std::unique_ptr<KvTier> disk_, store_;
};

}  // namespace stagecoach::worker
