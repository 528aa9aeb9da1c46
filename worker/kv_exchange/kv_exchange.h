// Moves KV blocks between a stage's device and the tiers below: host memory (--host-kv), then the
// store that other servers share (--kv-store). Saving and fetching happen on threads of their own,
// so no step waits for them. The stage copies between host memory and device
// (worker/stage/kv_copies.h).
//
// A fetch reads blocks from the first one on and stops at the first that is missing, damaged or
// foreign, or at its deadline: what comes before can be used. Memory is bounded: if it is short,
// blocks are not saved, and fetches end early.
#pragma once

#include <array>
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
#include "worker/kv_exchange/kv_host_tier.h"
#include "worker/kv_exchange/kv_memory.h"
#include "worker/kv_store/guarded_kv_store.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

struct FetchedBlocks {
  KvBlocks blocks;
  uint32_t n_complete = 0;  // from the first on
};

// Thread-safe, between Start and the end.
class KvExchange {
 public:
  struct Config {
    std::string store;          // URL, see worker/kv_store/kv_store.h; empty: none
    uint64_t memory_bytes = 0;  // half for saves, half for fetches; at least one block each
    uint64_t host_bytes = 0;    // of the host tier; 0: none
  };

  // INVALID_ARGUMENT: the URL, or memory for less than a block. RESOURCE_EXHAUSTED: there is
  // not so much host memory. Does not wait for the store.
  static absl::StatusOr<std::unique_ptr<KvExchange>> Start(const Config& config,
                                                           std::vector<KvPart> parts,
                                                           kernels::Ops* ops);
  // Saves what is queued, if the store takes it within seconds.
  ~KvExchange();
  KvExchange(const KvExchange&) = delete;
  KvExchange& operator=(const KvExchange&) = delete;

  const std::vector<KvPart>& parts() const { return parts_; }

  // Memory for so many blocks, or fewer. The others count as dropped.
  KvBlocks TakeForSave(uint32_t n);
  // Queues the blocks, which the device has filled, to be saved under these names.
  void Save(KvBlocks blocks, std::vector<KvBlockName> names);

  // Receives the answers to the epoch's fetches, on threads of the exchange. EndEpoch ends them and
  // forgets what was fetched; no call follows. In between, each fetch is answered once.
  void BeginEpoch(std::function<void(v1::KvFetched)> on_fetched);
  void EndEpoch();
  void Fetch(v1::KvFetch fetch);
  // The blocks that this fetch was answered with. Null: none, or the fetch is forgotten.
  std::shared_ptr<const FetchedBlocks> Fetched(uint64_t id) const;
  // Frees the memory of a fetch that was answered.
  void Forget(uint64_t id);

  v1::KvStoreStats Stats() const;

 private:
  struct SaveTask {
    KvBlocks blocks;
    std::vector<KvBlockName> names;
  };
  struct FetchTask {
    uint64_t epoch = 0;  // counts BeginEpoch
    v1::KvFetch fetch;
  };
  static constexpr size_t kFetchers = 2;

  KvExchange(const Config& config, std::vector<KvPart> parts, kernels::Buffer saves,
             kernels::Buffer fetches);
  absl::Status OpenStores(const std::string& url);
  void StartThreads();

  void SaveLoop();
  void SaveBlocks(const SaveTask& task);
  void SaveToStore(const SaveTask& task);
  void FetchLoop(KvStore* store);
  // Returns the number of complete blocks from the first on.
  uint32_t ReadBlocks(KvStore* store, std::span<const KvBlockName> names, const KvBlocks& blocks);
  // Continues behind n_done blocks.
  uint32_t ReadFromStore(KvStore& store, std::span<const KvBlockName> names, const KvBlocks& blocks,
                         uint32_t n_done);
  bool TakeEntries(std::span<const KvKey> keys, std::span<const std::optional<std::string>> entries,
                   const KvBlockName& name, const KvBlocks& blocks, uint32_t block);
  std::vector<KvKey> KeysOf(std::span<const KvBlockName> names) const;
  void Answer(const FetchTask& task, KvBlocks blocks, uint32_t n_complete);

  const std::vector<KvPart> parts_;
  KvMemory save_memory_, fetch_memory_;
  std::optional<KvHostTier> host_;
  const std::shared_ptr<KvStoreCounters> counters_ = std::make_shared<KvStoreCounters>();
  // Null if there is no store.
  std::unique_ptr<KvStore> save_store_;                           // of the save thread
  std::array<std::unique_ptr<KvStore>, kFetchers> fetch_stores_;  // of one fetch thread each
  std::atomic<uint64_t> n_saved_{0}, n_dropped_{0}, n_fetched_{0}, n_missed_{0},
      n_from_host_{0};  // blocks
  std::atomic<KvStore::Clock::time_point> save_until_{KvStore::Clock::time_point::max()};

  mutable Mutex mutex_;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void(v1::KvFetched)> on_fetched_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<const FetchedBlocks>> fetched_
      ABSL_GUARDED_BY(mutex_);  // by id; those with blocks

  ClosableQueue<SaveTask> saves_;  // KvMemory bounds it
  ClosableQueue<FetchTask> wanted_;
  std::vector<std::thread> threads_;
};

}  // namespace stagecoach::worker
