#include "worker/kv_store/guarded_kv_store.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/status.h"

namespace stagecoach::worker {

absl::StatusOr<CircuitBreaker::Round> KvStoreGuard::Ask(Side& side, const std::string& name) {
  const std::optional<CircuitBreaker::Round> round = side.breaker.Ask(Clock::now());
  if (round.has_value()) return *round;
  counters_->n_refused += 1;
  return absl::UnavailableError(
      fmt::format("{}: no {} for a while, because they fail", name, side.what));
}

void KvStoreGuard::Tell(Side& side, CircuitBreaker::Round round, const absl::Status& result,
                        const std::string& name) {
  if (result.ok()) {
    if (side.breaker.Succeeded(round)) {
      spdlog::info("KV store {}: {} succeed again", name, side.what);
    }
    return;
  }
  counters_->n_errors += 1;
  if (side.breaker.Failed(round, Clock::now())) {
    spdlog::warn("KV store {}: {} fail, so they are only tried now and then: {}", name, side.what,
                 std::string(result.message()));
  }
}

absl::StatusOr<std::vector<std::optional<std::string>>> GuardedKvStore::Get(
    std::span<const KvKey> keys, Clock::time_point deadline) {
  SC_ASSIGN_OR_RETURN(const CircuitBreaker::Round round, guard_->Ask(guard_->reads, name()));
  auto values = store_->Get(keys, deadline);
  guard_->Tell(guard_->reads, round, values.status(), name());
  SC_RETURN_IF_ERROR(values.status());
  KvStoreCounters& counters = guard_->counters();
  for (const std::optional<std::string>& value : *values) {
    (value.has_value() ? counters.n_hits : counters.n_misses) += 1;
    if (value.has_value()) counters.read_bytes += value->size();
  }
  return values;
}

absl::StatusOr<std::vector<bool>> GuardedKvStore::Has(std::span<const KvKey> keys,
                                                      Clock::time_point deadline) {
  SC_ASSIGN_OR_RETURN(const CircuitBreaker::Round round, guard_->Ask(guard_->reads, name()));
  auto found = store_->Has(keys, deadline);
  guard_->Tell(guard_->reads, round, found.status(), name());
  return found;
}

absl::Status GuardedKvStore::Put(std::span<const KvValue> values, Clock::time_point deadline) {
  SC_ASSIGN_OR_RETURN(const CircuitBreaker::Round round, guard_->Ask(guard_->writes, name()));
  const absl::Status status = store_->Put(values, deadline);
  guard_->Tell(guard_->writes, round, status, name());
  SC_RETURN_IF_ERROR(status);
  KvStoreCounters& counters = guard_->counters();
  for (const KvValue& value : values) counters.written_bytes += value.bytes.size();
  counters.n_written += values.size();
  return absl::OkStatus();
}

}  // namespace stagecoach::worker
