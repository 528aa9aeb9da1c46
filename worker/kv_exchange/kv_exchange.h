// Moves KV blocks between a stage's device and the tiers below: host memory (--host-kv), a disk of
// this machine (--disk-kv), and the store that other servers share (--kv-store). The device copies
// to and from host memory itself (worker/stage/kv_copies.h), so a block that is there costs a fetch
// nothing. Disk and store are written and read on threads of the exchange, so no step waits.
//
// A fetch collects blocks from the first one on. It stops at the first that is missing, damaged or
// foreign, at its deadline, and where computing the rest is faster than reading it. What comes
// before can be used. Memory is bounded: if it is short, blocks are not saved, and fetches end
// early.
//
// Recurrent layers have states in place of blocks, and a sequence goes on only where there is one.
// So on a stage with such layers, a fetch ends at the last state that a tier has, and brings it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/closable_queue.h"
#include "common/mutex.h"
#include "kernels/ops.h"
#include "stagecoach/v1/stage.pb.h"
#include "stagecoach/v1/step.pb.h"
#include "worker/kv_exchange/kv_blocks.h"
#include "worker/kv_exchange/kv_pool.h"
#include "worker/kv_exchange/kv_staging.h"
#include "worker/kv_exchange/tiered_pool.h"

namespace stagecoach::worker {

// Thread-safe, between Start and the end.
class KvExchange {
 public:
  struct Config {
    uint64_t host_bytes = 0;  // of both pools; at least a block and a state
    std::string disk;         // DIR[:SIZE], see worker/kv_store/disk_tier.h; empty: none
    uint32_t n_local = 1;     // workers that share the disk's SIZE
    std::string store;        // URL, see worker/kv_store/kv_store.h; empty: none
  };
  // What a fetch was answered with.
  struct FetchedKv {
    uint32_t n_blocks = 0;
    KvPool::Places blocks;  // empty if the stage has no part of a block
    KvPool::Place state;  // at the end of the blocks; not valid: the stage has no recurrent layers
  };

  // parts, state_parts: what the stage has of a block, and of a state; both may be empty.
  // INVALID_ARGUMENT: disk or URL, or memory or disk for less than a block and a state.
  // RESOURCE_EXHAUSTED: there is not so much host memory. Other errors: the folder of the disk
  // cannot be used. Does not wait for the store.
  static absl::StatusOr<std::unique_ptr<KvExchange>> Start(const Config& config,
                                                           std::vector<KvPart> parts,
                                                           std::vector<KvPart> state_parts,
                                                           kernels::Ops* ops);
  // Saves what is queued, if disk and store take it within seconds.
  ~KvExchange();
  KvExchange(const KvExchange&) = delete;
  KvExchange& operator=(const KvExchange&) = delete;

  // Null: no layer of the stage has keys and values of its own.
  TieredPool* blocks() { return blocks_.get(); }
  // By the names that OfState makes. Null: the stage has no recurrent layers.
  TieredPool* states() { return states_.get(); }
  // Null if the device is done with a call when it returns, so that nothing can run beside it.
  KvStaging* staging() { return staging_ ? &*staging_ : nullptr; }

  // Receives the answers to the epoch's fetches, on threads of the exchange. EndEpoch ends them and
  // forgets what was fetched; no call follows. In between, each fetch is answered once.
  void BeginEpoch(std::function<void(v1::KvFetched)> on_fetched);
  void EndEpoch();
  void Fetch(v1::KvFetch fetch);
  // Null: the fetch was answered with no block, or is forgotten.
  std::shared_ptr<const FetchedKv> Fetched(uint64_t id) const;
  // Releases the places of a fetch that was answered.
  void Forget(uint64_t id);

  // The stage has computed so many rows in this time: how fast a fetch must be to be worth it.
  void Computed(uint64_t n_rows, double seconds);

  v1::KvStoreStats Stats() const;

 private:
  struct FetchTask {
    uint64_t epoch = 0;  // counts BeginEpoch
    v1::KvFetch fetch;
  };
  static constexpr size_t kFetchers = 2;

  KvExchange() = default;
  absl::Status OpenPools(const Config& config, std::vector<KvPart> parts,
                         std::vector<KvPart> state_parts, kernels::Ops* ops);
  void StartThreads();

  // Warns if the store cannot be used. Otherwise nobody would know before the first requests.
  void TryStore(size_t fetcher);
  void FetchLoop(size_t fetcher);
  // The time that computing so many blocks would take. 0: unknown.
  double SecondsToCompute(uint32_t n_blocks) const;
  // The complete blocks from the first on.
  void CollectBlocks(size_t fetcher, std::span<const KvBlockName> names,
                     TieredPool::Clock::time_point deadline, FetchedKv& kv,
                     TieredPool::Counts& counts);
  // The blocks before the newest state that is complete, and that state.
  void CollectToState(size_t fetcher, std::span<const KvBlockName> names,
                      TieredPool::Clock::time_point deadline, FetchedKv& kv,
                      TieredPool::Counts& counts);
  // The complete blocks from the first on; on a stage with recurrent layers, those up to a state.
  FetchedKv Collect(size_t fetcher, std::span<const KvBlockName> names, v1::KvFetched& fetched);
  void Answer(const FetchTask& task, FetchedKv kv, v1::KvFetched fetched);

  const std::shared_ptr<KvStoreCounters> counters_ = std::make_shared<KvStoreCounters>();
  std::unique_ptr<TieredPool> blocks_, states_;
  std::optional<KvStaging> staging_;
  std::atomic<uint64_t> n_fetched_{0}, n_missed_{0}, n_from_host_{0};  // blocks
  std::atomic<uint64_t> n_fetched_states_{0};
  BlockTimes compute_times_;

  mutable Mutex mutex_;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void(v1::KvFetched)> on_fetched_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<const FetchedKv>> fetched_
      ABSL_GUARDED_BY(mutex_);  // by id; those with blocks

  ClosableQueue<FetchTask> wanted_;
  std::vector<std::thread> fetchers_;
};

}  // namespace stagecoach::worker
