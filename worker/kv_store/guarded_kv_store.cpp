#include "worker/kv_store/guarded_kv_store.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/status.h"

namespace stagecoach::worker {

absl::Status GuardedKvStore::Ask(Side& side) {
  if (side.breaker.Allows(Clock::now())) return absl::OkStatus();
  counters_->n_refused += 1;
  return absl::UnavailableError(
      fmt::format("{}: no {} for a while, because they fail", name(), side.what));
}

void GuardedKvStore::Tell(Side& side, const absl::Status& result) {
  const bool was_open = side.breaker.is_open();
  if (result.ok()) {
    side.breaker.Succeeded();
    if (was_open) spdlog::info("KV store {}: {} succeed again", name(), side.what);
    return;
  }
  counters_->n_errors += 1;
  side.breaker.Failed(Clock::now());
  if (was_open || !side.breaker.is_open()) return;
  spdlog::warn("KV store {}: {} fail, so they are only tried now and then: {}", name(), side.what,
               std::string(result.message()));
}

absl::StatusOr<std::vector<std::optional<std::string>>> GuardedKvStore::Get(
    std::span<const KvKey> keys, Clock::time_point deadline) {
  SC_RETURN_IF_ERROR(Ask(reads_));
  auto values = store_->Get(keys, deadline);
  Tell(reads_, values.status());
  SC_RETURN_IF_ERROR(values.status());
  for (const std::optional<std::string>& value : *values) {
    (value.has_value() ? counters_->n_hits : counters_->n_misses) += 1;
    if (value.has_value()) counters_->read_bytes += value->size();
  }
  return values;
}

absl::StatusOr<std::vector<bool>> GuardedKvStore::Has(std::span<const KvKey> keys,
                                                      Clock::time_point deadline) {
  SC_RETURN_IF_ERROR(Ask(reads_));
  auto found = store_->Has(keys, deadline);
  Tell(reads_, found.status());
  return found;
}

absl::Status GuardedKvStore::Put(std::span<const KvValue> values, Clock::time_point deadline) {
  SC_RETURN_IF_ERROR(Ask(writes_));
  const absl::Status status = store_->Put(values, deadline);
  Tell(writes_, status);
  SC_RETURN_IF_ERROR(status);
  for (const KvValue& value : values) counters_->written_bytes += value.bytes.size();
  counters_->n_written += values.size();
  return absl::OkStatus();
}

}  // namespace stagecoach::worker
