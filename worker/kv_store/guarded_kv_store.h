// A store that counts, and that is left alone while it fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/kv_store/circuit_breaker.h"
#include "worker/kv_store/kv_store.h"

namespace stagecoach::worker {

// Counts since the start. Several stores may share one object; any thread may read it.
struct KvStoreCounters {
  std::atomic<uint64_t> n_hits{0};     // values that were found
  std::atomic<uint64_t> n_misses{0};   // keys without a value
  std::atomic<uint64_t> n_corrupt{0};  // hits of no use; counted by whoever decodes them
  std::atomic<uint64_t> n_written{0};  // values
  std::atomic<uint64_t> n_errors{0};   // calls that failed
  std::atomic<uint64_t> n_refused{0};  // calls that were not made, because earlier ones had failed
  std::atomic<uint64_t> read_bytes{0};
  std::atomic<uint64_t> written_bytes{0};
};

// Without it, a store that does not answer would cost each call the time until its deadline. Reads
// and writes are refused independently, because a full place can still be read. Logs when it begins
// to refuse calls, and when they succeed again.
class GuardedKvStore final : public KvStore {
 public:
  // REQUIRES: neither is null.
  GuardedKvStore(std::shared_ptr<KvStore> store, std::shared_ptr<KvStoreCounters> counters,
                 const CircuitBreaker::Options& options = {})
      : store_(std::move(store)),
        counters_(std::move(counters)),
        reads_{"reads", CircuitBreaker(options)},
        writes_{"writes", CircuitBreaker(options)} {}

  std::string name() const override { return store_->name(); }
  // UNAVAILABLE also if the call is refused.
  absl::StatusOr<std::vector<std::optional<std::string>>> Get(std::span<const KvKey> keys,
                                                              Clock::time_point deadline) override;
  absl::StatusOr<std::vector<bool>> Has(std::span<const KvKey> keys,
                                        Clock::time_point deadline) override;
  absl::Status Put(std::span<const KvValue> values, Clock::time_point deadline) override;

 private:
  struct Side {
    const char* what;
    CircuitBreaker breaker;
  };

  absl::Status Ask(Side& side);
  void Tell(Side& side, const absl::Status& result);

  const std::shared_ptr<KvStore> store_;
  const std::shared_ptr<KvStoreCounters> counters_;
  Side reads_, writes_;
};

}  // namespace stagecoach::worker
