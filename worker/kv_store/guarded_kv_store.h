// Stores that count, and that are left alone while they fail.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

// What the stores of a tier share, which one thread each uses: counters, and when to leave the tier
// alone. Without the latter, one that does not answer would cost each call the time until its
// deadline. Reads and writes are refused independently, because a full place can still be read.
// Thread-safe.
class KvStoreGuard {
 public:
  using Clock = CircuitBreaker::Clock;

  struct Side {
    const char* what;
    CircuitBreaker breaker;
  };

  // REQUIRES: `counters` is not null.
  explicit KvStoreGuard(std::shared_ptr<KvStoreCounters> counters,
                        const CircuitBreaker::Options& options = {})
      : reads{"reads", CircuitBreaker(options)},
        writes{"writes", CircuitBreaker(options)},
        counters_(std::move(counters)) {}

  // UNAVAILABLE: the call is refused. Otherwise the caller makes it, and tells how it ended. `name`
  // is the store's.
  absl::StatusOr<CircuitBreaker::Round> Ask(Side& side, const std::string& name);
  // Logs if this begins the time in which calls are refused, or ends it.
  void Tell(Side& side, CircuitBreaker::Round round, const absl::Status& result,
            const std::string& name);

  KvStoreCounters& counters() const { return *counters_; }

  Side reads, writes;

 private:
  const std::shared_ptr<KvStoreCounters> counters_;
};

// A store that counts, and that is left alone while the tier fails.
class GuardedKvStore final : public KvStore {
 public:
  // REQUIRES: neither is null.
  GuardedKvStore(std::shared_ptr<KvStore> store, std::shared_ptr<KvStoreGuard> guard)
      : store_(std::move(store)), guard_(std::move(guard)) {}

  std::string name() const override { return store_->name(); }
  // UNAVAILABLE also if the call is refused.
  absl::StatusOr<std::vector<std::optional<std::string>>> Get(std::span<const KvKey> keys,
                                                              Clock::time_point deadline) override;
  absl::StatusOr<std::vector<bool>> Has(std::span<const KvKey> keys,
                                        Clock::time_point deadline) override;
  absl::Status Put(std::span<const KvValue> values, Clock::time_point deadline) override;

 private:
  const std::shared_ptr<KvStore> store_;
  const std::shared_ptr<KvStoreGuard> guard_;
};

}  // namespace stagecoach::worker
