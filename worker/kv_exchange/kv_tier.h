// A tier below host memory: a disk of this machine (--disk-kv), or the store that servers share
// (--kv-store). Saving happens on a thread of the tier, so one that hangs does not delay the other.
//
// Several threads share the blocks of a call, each with a store of its own. A value is small (a
// layer of a block), so one thread spends most of its time in system calls and in copying.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/closable_queue.h"
#include "worker/kv_exchange/block_times.h"
#include "worker/kv_exchange/kv_blocks.h"
#include "worker/kv_exchange/kv_pool.h"
#include "worker/kv_store/guarded_kv_store.h"

namespace stagecoach::worker {

// Places that the device fills with blocks to save, and then these blocks, until all tiers have
// them. A counter counts the places as long as they are held, whatever becomes of the step.
class KvSaving {
 public:
  KvSaving() = default;
  // `n_held` outlives this.
  KvSaving(KvPool::Places places, std::atomic<uint32_t>* n_held);
  KvSaving(KvSaving&& other) noexcept { *this = std::move(other); }
  KvSaving& operator=(KvSaving&& other) noexcept;
  ~KvSaving() { Release(); }

  bool empty() const { return places_.empty(); }
  size_t size() const { return places_.size(); }
  const KvPool::Place& operator[](size_t i) const { return places_[i]; }

 private:
  void Release();

  KvPool::Places places_;
  std::atomic<uint32_t>* n_held_ = nullptr;  // null: there are no places
};

struct KvSaveTask {
  KvSaving places;
  std::vector<KvBlockName> names;
};

// Thread-safe.
class KvTier {
 public:
  using Clock = KvStore::Clock;
  static constexpr size_t kParts = 8;               // threads that share the blocks of a call
  static constexpr uint64_t kCallBytes = 16 << 20;  // of values in a part, if they are many
  // A store for one thread; threads may share one that is thread-safe.
  using Opener = std::function<absl::StatusOr<std::shared_ptr<KvStore>>()>;
  // A disk, or a store that servers share; tiers of blocks and of states have the same one.
  struct Source {
    Opener open;
    std::shared_ptr<KvStoreGuard> guard;
  };

  // `pool` outlives the tier. Fetches come from `n_fetchers` threads.
  static absl::StatusOr<std::unique_ptr<KvTier>> Open(KvPool* pool, const Source& source,
                                                      size_t n_fetchers);
  // Closes, and waits until the rest is saved.
  ~KvTier();
  KvTier(const KvTier&) = delete;
  KvTier& operator=(const KvTier&) = delete;

  std::string name() const { return save_stores_.front()->name(); }
  void Save(std::shared_ptr<const KvSaveTask> task);
  // Ignores later tasks. What is queued is still saved, for some seconds at the most.
  void Close();
  // Reads the blocks to new places, from the first on, and keeps and adds these. Stops at a block
  // that the tier lacks, and when the pool has no place. The fetcher's thread calls this.
  void Read(size_t fetcher, std::span<const KvBlockName> names, Clock::time_point deadline,
            KvPool::Places& places);
  // The number of names up to the last one that the tier has a value of; 0: it has none, or fails.
  // The fetcher's thread calls this.
  uint32_t FindLast(size_t fetcher, std::span<const KvBlockName> names, Clock::time_point deadline);
  // Asks for a value, to see whether the tier can be used. The fetcher's thread calls this.
  absl::Status Try(size_t fetcher, Clock::time_point deadline) {
    return fetch_stores_[fetcher].front()->Has({{KvKey{}}}, deadline).status();
  }
  // Whether reading so many blocks takes less time than computing them: by the calls so far, or
  // because nothing is known, or not lately. recompute_s 0: unknown.
  bool IsFaster(uint32_t n_blocks, double recompute_s);

  uint64_t n_saved() const { return n_saved_; }
  uint64_t n_dropped() const { return n_dropped_; }
  uint64_t n_fetched() const { return n_fetched_; }

 private:
  KvTier(KvPool* pool, KvStoreCounters* counters, size_t n_helpers)
      : pool_(*pool), counters_(*counters), helpers_(n_helpers) {}
  using Stores = std::array<std::unique_ptr<KvStore>, kParts>;
  static absl::Status OpenStores(const Source& source, Stores& stores);
  // Calls it with 0 to n_parts - 1, on the caller's thread and on others, and waits for all.
  // REQUIRES: 0 < n_parts <= kParts
  void InParts(size_t n_parts, absl::FunctionRef<void(size_t part)> call);
  void SaveLoop();
  void SaveBlocks(const KvSaveTask& task);
  void SaveCall(KvStore& store, const KvSaveTask& task, uint32_t first, uint32_t n);
  // Reads the blocks to these places. Returns how many are complete, from the first on.
  uint32_t ReadCall(KvStore& store, std::span<const KvBlockName> names,
                    const KvPool::Places& places, size_t first_place, Clock::time_point deadline);
  bool TakeEntries(std::span<const KvKey> keys, std::span<const std::optional<std::string>> entries,
                   const KvBlockName& name, const KvPool::Place& place);

  KvPool& pool_;
  KvStoreCounters& counters_;         // the guard's, which the stores hold
  Stores save_stores_;                // of the save thread
  std::vector<Stores> fetch_stores_;  // of one fetch thread each
  BlockTimes read_times_;
  std::atomic<Clock::time_point> tried_at_{Clock::time_point::min()};  // the last read
  std::atomic<uint64_t> n_saved_{0}, n_dropped_{0}, n_fetched_{0};     // blocks
  std::atomic<Clock::time_point> save_until_{Clock::time_point::max()};
  ClosableQueue<std::shared_ptr<const KvSaveTask>> saves_;  // the exchange bounds it
  boost::asio::thread_pool helpers_;                        // of all threads that call InParts
  std::thread saver_;
};

}  // namespace stagecoach::worker
